"""What an application does with redis-py, over RESP2 and RESP3.

PANDO_PORT names the port of a running server on 127.0.0.1; each test uses keys of its own.
"""

import os
import threading
import unittest

import redis

PORT = int(os.environ["PANDO_PORT"])


class Application:
    """The suite; run once per protocol by the classes below."""

    protocol = 2

    def setUp(self):
        self.pool = redis.ConnectionPool(
            host="127.0.0.1", port=PORT, protocol=self.protocol, decode_responses=True, max_connections=8
        )
        self.client = redis.Redis(connection_pool=self.pool)
        self.prefix = f"py{self.protocol}:{self.id().rsplit('.', 1)[-1]}:"
        for key in self.client.scan_iter(match=self.prefix + "*"):
            self.client.delete(key)

    def tearDown(self):
        self.client.close()
        self.pool.disconnect()

    def key(self, name):
        return self.prefix + name

    def test_the_handshake_names_a_server(self):
        info = self.client.info("server")
        self.assertIn("redis_version", info)
        self.assertGreater(self.client.client_id(), 0)
        self.client.client_setname("application")
        self.assertEqual(self.client.client_getname(), "application")

    def test_strings_with_options(self):
        key = self.key("s")
        self.assertTrue(self.client.set(key, "1", ex=100, nx=True))
        self.assertIsNone(self.client.set(key, "2", nx=True))
        self.assertEqual(self.client.set(key, "3", get=True, keepttl=True), "1")
        self.assertTrue(0 < self.client.ttl(key) <= 100)
        self.assertEqual(self.client.incrby(key, 39), 42)
        self.assertEqual(self.client.incrbyfloat(key, 0.5), 42.5)
        self.assertEqual(self.client.append(key, "!"), 5)
        self.assertEqual(self.client.getrange(key, 0, 1), "42")
        self.assertEqual(self.client.getdel(key), "42.5!")
        self.assertIsNone(self.client.get(key))

    def test_binary_values_come_back_unchanged(self):
        client = redis.Redis(host="127.0.0.1", port=PORT, protocol=self.protocol)
        key = self.key("binary").encode() + bytes(range(256))
        value = bytes(range(256)) * 4096
        client.set(key, value)
        self.assertEqual(client.get(key), value)
        client.delete(key)
        client.close()

    def test_several_keys(self):
        pairs = {self.key(str(i)): str(i) for i in range(100)}
        self.assertTrue(self.client.mset(pairs))
        self.assertEqual(self.client.mget(list(pairs)), list(pairs.values()))
        self.assertEqual(self.client.exists(*pairs), 100)
        self.assertEqual(self.client.delete(*pairs), 100)

    def test_a_pipeline(self):
        pipe = self.client.pipeline(transaction=False)
        for i in range(1000):
            pipe.set(self.key(f"p{i}"), i)
        for i in range(1000):
            pipe.get(self.key(f"p{i}"))
        replies = pipe.execute()
        self.assertEqual(replies[1000:], [str(i) for i in range(1000)])

    def test_a_transaction_with_watch_retries_until_it_wins(self):
        key = self.key("counter")
        self.client.set(key, 0)

        def increment():
            client = redis.Redis(connection_pool=self.pool)
            for _ in range(50):
                client.transaction(
                    lambda pipe: self.bump(pipe, key), key, value_from_callable=True
                )

        threads = [threading.Thread(target=increment) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.client.get(key), "200")

    @staticmethod
    def bump(pipe, key):
        value = int(pipe.get(key))
        pipe.multi()
        pipe.set(key, value + 1)
        return value

    def test_an_error_inside_a_transaction_spoils_only_its_command(self):
        pipe = self.client.pipeline(transaction=True)
        pipe.set(self.key("text"), "text").incr(self.key("text")).set(self.key("other"), "1")
        replies = pipe.execute(raise_on_error=False)
        self.assertEqual((replies[0], replies[2]), (True, True))
        self.assertIsInstance(replies[1], redis.ResponseError)

    def test_scan_iter_finds_every_key(self):
        keys = {self.key(f"scan{i}") for i in range(500)}
        self.client.mset(dict.fromkeys(keys, "x"))
        self.assertEqual(set(self.client.scan_iter(match=self.prefix + "*", count=17)), keys)
        self.assertEqual(set(self.client.keys(self.prefix + "*")), keys)

    def test_a_hash_as_a_mapping(self):
        key = self.key("h")
        mapping = {"name": "Pando", "trunks": "40000", "empty": ""}
        self.assertEqual(self.client.hset(key, mapping=mapping), 3)
        self.assertEqual(self.client.hgetall(key), mapping)
        self.assertEqual(self.client.hincrby(key, "trunks", 1), 40001)
        self.assertEqual(self.client.hmget(key, "name", "missing"), ["Pando", None])
        self.assertEqual(dict(self.client.hscan_iter(key)), mapping | {"trunks": "40001"})
        self.assertEqual(self.client.hdel(key, *mapping), 3)
        self.assertFalse(self.client.exists(key))

    def test_expiry(self):
        key = self.key("ttl")
        self.client.psetex(key, 60_000, "x")
        self.assertTrue(59_000 < self.client.pttl(key) <= 60_000)
        self.assertTrue(self.client.persist(key))
        self.assertEqual(self.client.ttl(key), -1)
        self.assertTrue(self.client.expireat(key, 1))
        self.assertIsNone(self.client.get(key))

    def test_wrong_types_and_values_raise(self):
        self.client.hset(self.key("h"), "f", "v")
        with self.assertRaisesRegex(redis.ResponseError, "WRONGTYPE"):
            self.client.get(self.key("h"))
        with self.assertRaisesRegex(redis.ResponseError, "unknown command"):
            self.client.execute_command("NOSUCHCOMMAND", "x")
        with self.assertRaisesRegex(redis.ResponseError, "wrong number of arguments"):
            self.client.execute_command("GET")

    def test_a_killed_connection_reconnects(self):
        client = redis.Redis(host="127.0.0.1", port=PORT, protocol=self.protocol, decode_responses=True)
        identity = client.client_id()
        self.client.client_kill_filter(_id=str(identity))
        self.assertTrue(client.set(self.key("after"), "x"))
        self.assertEqual(client.get(self.key("after")), "x")
        client.close()

    def test_ordered_ranges(self):
        self.client.mset({self.key(f"o{i}"): str(i) for i in range(10)})
        following, items = self.client.execute_command("KPREFIX", self.prefix, "LIMIT", 4)
        flat = items if self.protocol == 2 else [part for pair in items for part in pair]
        self.assertEqual(flat[1::2], ["0", "1", "2", "3"])
        following, items = self.client.execute_command("KPREFIX", self.prefix, "FROM", following, "KEYS")
        self.assertIsNone(following)
        self.assertEqual(items, [self.key(f"o{i}") for i in range(4, 10)])


class Resp2(Application, unittest.TestCase):
    protocol = 2


class Resp3(Application, unittest.TestCase):
    protocol = 3


if __name__ == "__main__":
    unittest.main()
