"""Celery: its broker's queues in lists, unacknowledged messages in a hash and a sorted set.

Absent: what needs channels (results, remote control, events) or scripts (queues that expire, the return
of messages whose worker has died). The worker below does not look for such messages.
PANDO_PORT names the port of a running server on 127.0.0.1.
"""

import os
import unittest
import uuid

import celery
import kombu.transport.redis
import redis
from celery.contrib.testing.worker import start_worker
from kombu import Connection

PORT = int(os.environ["PANDO_PORT"])
URL = f"redis://127.0.0.1:{PORT}/3"

# It unlocks by a script; every worker looks when it starts.
kombu.transport.redis.QoS.restore_visible = lambda *arguments, **options: None

app = celery.Celery("suite", broker=URL, backend="cache+memory://")
app.conf.update(
    task_default_queue="suite",
    task_acks_late=True,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=False,
    worker_enable_remote_control=False,
)


@app.task(name="suite.add")
def add(first, second):
    return first + second


@app.task(name="suite.flaky", bind=True, max_retries=3)
def flaky(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return self.request.retries


@app.task(name="suite.fail")
def fail():
    raise ValueError("not today")


class Tasks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = redis.Redis(host="127.0.0.1", port=PORT, db=3)
        cls.client.flushdb()
        cls.worker = start_worker(
            app,
            concurrency=4,
            loglevel="CRITICAL",
            perform_ping_check=False,
            pool="threads",
            shutdown_timeout=60,
        )
        cls.worker.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.worker.__exit__(None, None, None)
        cls.client.close()

    def test_tasks_run_and_give_their_results(self):
        results = [add.delay(number, 1) for number in range(30)]
        self.assertEqual([result.get(timeout=60) for result in results], list(range(1, 31)))
        self.assertTrue(all(result.successful() for result in results))

    def test_a_group_and_a_chain(self):
        group = celery.group(add.s(number, number) for number in range(10))()
        self.assertEqual(group.get(timeout=60), [2 * number for number in range(10)])
        self.assertEqual((add.s(1, 2) | add.s(3) | add.s(4))().get(timeout=60), 10)

    def test_a_task_is_retried(self):
        self.assertEqual(flaky.delay().get(timeout=60), 2)

    def test_a_failed_task_tells_why(self):
        result = fail.delay()
        with self.assertRaisesRegex(ValueError, "not today"):
            result.get(timeout=60)
        self.assertTrue(result.failed())


class Broker(unittest.TestCase):
    """kombu alone: what the broker does with messages."""

    def setUp(self):
        self.connection = Connection(URL)
        self.addCleanup(self.connection.close)
        self.queue = self.connection.SimpleQueue(f"broker-{uuid.uuid4()}")
        self.addCleanup(self.queue.close)

    def test_messages_come_in_their_order(self):
        for number in range(20):
            self.queue.put({"number": number})
        self.assertEqual(self.queue.qsize(), 20)
        for number in range(20):
            message = self.queue.get(timeout=60)
            self.assertEqual(message.payload, {"number": number})
            message.ack()
        with self.assertRaises(self.queue.Empty):
            self.queue.get(block=False)

    def test_a_rejected_message_comes_again(self):
        self.queue.put("once")
        self.queue.get(timeout=60).requeue()
        message = self.queue.get(timeout=60)
        self.assertTrue(message.delivery_info["redelivered"])
        message.ack()

    def test_urgent_messages_come_first(self):
        queue = self.queue.queue
        for priority in [9, 0, 6, 3]:
            self.queue.producer.publish(
                priority,
                exchange=queue.exchange,
                priority=priority,
                routing_key=queue.routing_key,
            )
        order = []
        for _ in range(4):
            message = self.queue.get(timeout=60)
            order.append(message.payload)
            message.ack()
        self.assertEqual(order, [0, 3, 6, 9])


if __name__ == "__main__":
    unittest.main()
