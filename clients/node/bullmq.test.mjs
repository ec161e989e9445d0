// What BullMQ does without scripts: events in streams, and a queue's settings in a hash.
//
// All else in BullMQ is scripts: adding a job, taking it, finishing it. PANDO_PORT names the port of a
// running server on 127.0.0.1.

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { Queue, QueueEvents, QueueEventsProducer } from "bullmq";

const connection = { host: "127.0.0.1", port: Number(process.env.PANDO_PORT) };

test("events are read by every listener, in order", async () => {
  const name = `events-${process.pid}`;
  const listeners = [0, 1].map(() => new QueueEvents(name, { connection, lastEventId: "0-0" }));
  const producer = new QueueEventsProducer(name, { connection });
  const heard = listeners.map(() => []);
  const done = listeners.map((listener, index) => {
    listener.on("progressed", ({ step }, id) => heard[index].push([step, id]));
    return once(listener, "ended");
  });
  await Promise.all(listeners.map((listener) => listener.waitUntilReady()));
  for (let step = 0; step < 50; step += 1) {
    await producer.publishEvent({ eventName: "progressed", step });
  }
  await producer.publishEvent({ eventName: "ended" });
  await Promise.all(done);
  const steps = heard[0].map(([step]) => Number(step));
  assert.deepEqual(steps, Array.from({ length: 50 }, (_, step) => step));
  assert.deepEqual(heard[1], heard[0]);
  await Promise.all([...listeners, producer].map((it) => it.close()));
});

test("a listener that was away reads on from where it was", async () => {
  const name = `resumed-${process.pid}`;
  const producer = new QueueEventsProducer(name, { connection });
  const hear = async (lastEventId) => {
    const listener = new QueueEvents(name, { connection, lastEventId });
    const heard = once(listener, "progressed");
    const [{ step }, id] = await heard;
    await listener.close();
    return [Number(step), id];
  };
  await producer.publishEvent({ eventName: "progressed", step: 1 });
  const [first, id] = await hear("0-0");
  await producer.publishEvent({ eventName: "progressed", step: 2 });
  const [second] = await hear(id);
  assert.deepEqual([first, second], [1, 2]);
  await producer.close();
});

test("a queue keeps its settings and trims its events", async () => {
  const queue = new Queue(`settings-${process.pid}`, { connection });
  const producer = new QueueEventsProducer(queue.name, { connection });
  await queue.waitUntilReady();
  await queue.setGlobalConcurrency(4);
  assert.equal(await queue.getGlobalConcurrency(), 4);
  assert.equal(await queue.isPaused(), false);
  await queue.removeGlobalConcurrency();
  assert.equal(await queue.getGlobalConcurrency(), null);
  for (let step = 0; step < 300; step += 1) {
    await producer.publishEvent({ eventName: "progressed", step }, 1000);
  }
  assert.equal(await queue.trimEvents(0), 300);
  await Promise.all([queue.close(), producer.close()]);
});
