"""What an application does with pymemcache: one client, and one that hashes over several servers.

PANDO_MEMCACHED_PORT names the port for memcached clients of a running server on 127.0.0.1, PANDO_PORT
the one for Redis clients; each test uses keys of its own.
"""

import base64
import os
import threading
import unittest

import redis
from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient
from pymemcache.exceptions import MemcacheClientError
from pymemcache.serde import pickle_serde

SERVER = ("127.0.0.1", int(os.environ["PANDO_MEMCACHED_PORT"]))


class Application(unittest.TestCase):
    def setUp(self):
        self.prefix = self.id().rsplit(".", 1)[-1] + ":"
        self.client = Client(SERVER, key_prefix=self.prefix.encode(), default_noreply=False)

    def tearDown(self):
        self.client.close()

    def test_items_are_stored_under_conditions(self):
        client = self.client
        client.delete("k")
        self.assertFalse(client.replace("k", "x"))
        self.assertTrue(client.add("k", "x"))
        self.assertFalse(client.add("k", "y"))
        self.assertTrue(client.append("k", "b"))
        self.assertTrue(client.prepend("k", "a"))
        self.assertEqual(client.get("k"), b"axb")
        self.assertTrue(client.delete("k"))
        self.assertIsNone(client.get("k"))

    def test_many_keys_at_once(self):
        items = {f"k{number}": str(number).encode() * number for number in range(200)}
        self.assertEqual(self.client.set_many(items), [])
        self.assertEqual(self.client.get_many(list(items) + ["none"]), items)
        self.client.delete_many(list(items))
        self.assertEqual(self.client.get_many(list(items)), {})

    def test_cas_lets_one_of_many_writers_pass(self):
        self.client.set("n", "0")

        def count(client):
            for _ in range(50):
                while True:
                    value, token = client.gets("n")
                    if client.cas("n", str(int(value) + 1), token):
                        break

        clients = [Client(SERVER, key_prefix=self.prefix.encode(), default_noreply=False) for _ in range(4)]
        threads = [threading.Thread(target=count, args=[client]) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client in clients:
            client.close()
        self.assertEqual(self.client.get("n"), b"200")
        self.assertIsNone(self.client.cas("none", "x", b"1"))

    def test_numbers_and_expiry(self):
        client = self.client
        client.set("n", "10")
        self.assertEqual(client.incr("n", 5), 15)
        self.assertEqual(client.decr("n", 100), 0)
        self.assertIsNone(client.incr("none", 1))
        client.set("x", "12x")
        with self.assertRaises(MemcacheClientError):
            client.incr("x", 1)
        client.set("gone", "x", expire=-1)
        self.assertIsNone(client.get("gone"))
        self.assertTrue(client.touch("n", 100))
        # A number that has become shorter keeps its length, as in memcached.
        self.assertEqual(client.get("n"), b"0 ")

    def test_quiet_requests_are_pipelined(self):
        for number in range(5000):
            self.client.set(f"q{number}", str(number), noreply=True)
        self.assertEqual(self.client.get("q4999"), b"4999")

    def test_python_values(self):
        client = Client(SERVER, serde=pickle_serde, key_prefix=self.prefix.encode())
        value = {"name": "Ada", "ranks": [1, 2, 3]}
        client.set("object", value)
        self.assertEqual(client.get("object"), value)
        client.close()

    def test_redis_clients_share_the_keys(self):
        with redis.Redis(port=int(os.environ["PANDO_PORT"])) as other:
            self.client.set("shared", "41", expire=100)
            self.assertEqual(other.incr(self.prefix + "shared"), 42)
            self.assertEqual(self.client.get("shared"), b"42")
            self.assertGreater(other.ttl(self.prefix + "shared"), 90)

    def test_a_client_that_hashes_and_one_that_pools(self):
        hashing = HashClient([SERVER, f"localhost:{SERVER[1]}"], use_pooling=True)
        pooled = PooledClient(SERVER, max_pool_size=4)
        for client in (hashing, pooled):
            for number in range(100):
                client.set(f"{self.prefix}{number}", str(number))
            self.assertEqual(client.get(f"{self.prefix}99"), b"99")
            client.close()

    def test_meta_commands_as_they_are(self):
        key = self.prefix + "m"
        raw = self.client.raw_command
        self.assertEqual(raw(f"ms {key} 2 F7\r\nab"), b"HD")
        self.assertEqual(raw(f"mg {key} s f t"), b"HD s2 f7 t-1")
        encoded = base64.b64encode(key.encode()).decode()
        self.assertEqual(raw(f"mg {encoded} b v", end_tokens=b"ab\r\n"), b"VA 2\r\n")
        self.assertEqual(self.client.get("m"), b"ab")
        self.assertEqual(raw(f"md {key} q\r\nmn"), b"MN")
        self.assertIsNone(self.client.get("m"))

    def test_figures(self):
        self.client.get("none")
        self.assertGreater(self.client.stats()[b"get_misses"], 0)
        self.assertTrue(self.client.version().startswith(b"1.6."))


if __name__ == "__main__":
    unittest.main()
