"""The routes below `admin/`, one module per area.

How to add a route:

1. In the module of its area (`api/queues.py`) write a coroutine with the decorator of the
   module's `router = APIRouter(tags=["queues"])`. Paths begin below `/admin`:
   `@router.get("/queues/{name}")`. A new module goes into the list of `api/routers.py`.
2. Its first parameter is the call, with the role that it needs (`web/roles.py`):

       async def list_queues(call: Viewer) -> QueueList: ...
       async def pause_queue(
           call: Annotated[WebCall, may("pause_queue")], name: str, body: PauseBody
       ) -> Changed: ...

   `Viewer`, `Operator` and `Admin` read. Whatever changes something uses `may(VERB)`: the
   role of the verb is in `roles.VERBS` (add a verb there; `admin/me` shows it as `may`).
   It also refuses the change on a read-only dashboard. A route without a role stops the
   start of the process; the matrix of tests/web/test_roles.py tests every route by itself.
3. The call has all that a route needs (`web/call.py`): `call.app` (the App), `await
   call.store()`, `call.user` (name, role), `call.by` (text for `by=` of client functions),
   `call.note(target, verb=..., before=..., after=...)` (the audit line, to be passed to the
   commit that makes the change), `call.sees_job(job)` and `call.check_queue(name)` (users
   may be limited to queues), `call.payload(value)` (JSON text, None when it is masked).
4. What it answers is a model of pydantic that inherits `Answer` (`api/shapes.py`); what it
   takes, one that inherits `Body`. Lists are `Items[Item]` with `cursor` and `partial`;
   take `limit: Limit = 50` and `cursor: Cursor = None`, and use `api/cursors.py`, so that a
   cursor of another query is refused. Times are `datetime` in UTC; they become `...Z`.
5. Refuse by raising: every DurioError has a status (`problems.STATUS_OF`); for anything else
   `raise Refusal(409, "code", "what happened", "what to do")`. Never build an answer with a
   status of 400 or more by hand.
6. Read the store with what `client/` has; logic that the CLI needs too belongs there.
"""
