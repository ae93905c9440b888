"""A Django project in one file: enqueues with `tx=django.db.connection`.

Arguments: the URL of the store, and Django's database as JSON. Prints what happened as
JSON.
"""

import asyncio
import json
import sys
import threading
from contextlib import suppress
from typing import Any

import django
from django.conf import settings

from durio import App
from durio.errors import DurioError, JobNotFound

app = App(sys.argv[1], name="shop")


@app.task
def send(number: int) -> int:
    return number


def main() -> dict[str, Any]:
    settings.configure(DATABASES={"default": json.loads(sys.argv[2])})
    django.setup()
    from django.db import connection, connections, transaction  # noqa: PLC0415

    app.run_sync(app.store())  # its tables, before a transaction holds the file
    told: dict[str, Any] = {}

    def insert(number: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("insert into mine (n) values (%s)", [number])

    def refusal() -> str:
        try:
            send.options(tx=connection).enqueue_sync(0)
        except DurioError as error:
            return str(error)
        return ""

    with connection.cursor() as cursor:
        cursor.execute("create table if not exists mine (n int)")
    told["outside"] = refusal()
    with suppress(KeyError), transaction.atomic():
        insert(1)
        undone = send.options(tx=connection).enqueue_sync(1)
        raise KeyError
    with transaction.atomic():
        with suppress(KeyError), transaction.atomic():
            insert(2)
            within = send.options(tx=connection).enqueue_sync(2)
            raise KeyError
        insert(3)
        job = send.options(tx=connection).enqueue_sync(3)
        wrapper = send.options(tx=connections["default"]).enqueue_sync(4)
        refused: list[str] = []
        thread = threading.Thread(target=lambda: refused.append(refusal()))
        thread.start()
        thread.join()
        told["other thread"] = refused[0]
    with connection.cursor() as cursor:
        cursor.execute("select n from mine")
        told["rows"] = [n for (n,) in cursor.fetchall()]
    connection.close()
    told["closed"] = refusal()
    told["undone"] = [not is_stored(each.id) for each in (undone, within)]
    told["results"] = asyncio.run(results(job.id, wrapper.id))
    return told


def is_stored(job_id: str) -> bool:
    try:
        app.run_sync(app.job(job_id))
    except JobNotFound:
        return False
    return True


async def results(*ids: str) -> list[int]:
    async with app, app.worker():
        return [await (await app.job(each)).result(timeout=20) for each in ids]


if __name__ == "__main__":
    print(json.dumps(main()))
