// What an application does with ioredis. PANDO_PORT names the port of a running server on 127.0.0.1.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Redis } from "ioredis";

const port = Number(process.env.PANDO_PORT);
let client;

before(async () => {
  client = new Redis({ host: "127.0.0.1", port, keyPrefix: "" });
  const stale = await client.keys("node:*");
  if (stale.length > 0) await client.del(stale);
});

after(() => client.quit());

test("waits until the server is ready", async () => {
  assert.match(await client.info("persistence"), /loading:0/);
  assert.equal(await client.ping(), "PONG");
});

test("strings, numbers and expiry", async () => {
  assert.equal(await client.set("node:s", "1", "EX", 100, "NX"), "OK");
  assert.equal(await client.set("node:s", "2", "NX"), null);
  assert.equal(await client.incr("node:s"), 2);
  assert.ok((await client.ttl("node:s")) > 90);
  const bytes = Buffer.from([0, 255, 13, 10, 0]);
  await client.set("node:b", bytes);
  assert.deepEqual(await client.getBuffer("node:b"), bytes);
});

test("a pipeline keeps its order", async () => {
  const pipeline = client.pipeline();
  for (let i = 0; i < 500; i += 1) pipeline.set(`node:p${i}`, i).get(`node:p${i}`);
  const replies = await pipeline.exec();
  assert.equal(replies.length, 1000);
  for (let i = 0; i < 500; i += 1) assert.deepEqual(replies[2 * i + 1], [null, String(i)]);
});

test("a transaction and a watch that is broken", async () => {
  assert.deepEqual(await client.multi().set("node:m", "1").incr("node:m").exec(), [
    [null, "OK"],
    [null, 2],
  ]);
  const other = client.duplicate();
  await client.watch("node:m");
  await other.set("node:m", "9");
  assert.equal(await client.multi().set("node:m", "3").exec(), null);
  assert.equal(await client.get("node:m"), "9");
  await other.quit();
});

test("a scan stream sees every key", async () => {
  const expected = new Set();
  for (let i = 0; i < 300; i += 1) expected.add(`node:scan:${i}`);
  await client.mset(...[...expected].flatMap((key) => [key, "x"]));
  const seen = new Set();
  for await (const keys of client.scanStream({ match: "node:scan:*", count: 20 })) {
    for (const key of keys) seen.add(key);
  }
  assert.deepEqual(seen, expected);
});

test("a hash as an object", async () => {
  await client.hset("node:h", { name: "Pando", trunks: 40000 });
  assert.deepEqual(await client.hgetall("node:h"), { name: "Pando", trunks: "40000" });
  assert.equal(await client.hincrby("node:h", "trunks", 2), 40002);
  assert.deepEqual(await client.hmget("node:h", "name", "missing"), ["Pando", null]);
});

test("an error names its cause", async () => {
  await assert.rejects(client.get("node:h"), /WRONGTYPE/);
  await assert.rejects(client.call("NOSUCH"), /unknown command/);
});

test("a killed connection reconnects", async () => {
  const victim = new Redis({ host: "127.0.0.1", port, retryStrategy: () => 10 });
  const identity = await victim.client("ID");
  await client.client("KILL", "ID", identity);
  assert.equal(await victim.set("node:after", "x"), "OK");
  assert.notEqual(await victim.client("ID"), identity);
  await victim.quit();
});
