import type { FaultKind } from "../../src/kit/fault.ts";

/** A call as the page shows it. */
export interface ShownCall {
  /** `POST /api/v1/kv/buckets` */
  route: string;
  headers?: Record<string, string>;
  body?: unknown;
}

/** What the page of errors says of one kind beside what the code says of it. */
export interface FaultPage {
  /** When a caller meets it. */
  when: string;
  /** What a caller does about it. */
  remedy: string;
  /** Calls that must go well before the one that is shown; and after it, to leave the server as it was. */
  before?: readonly ShownCall[];
  after?: readonly ShownCall[];
  /** Undefined where no caller can bring it about. */
  call?: ShownCall;
  /** Whose key the call carries: the admin's when left out. */
  as?: "nobody" | "viewer";
  /** Its body, in which `…` stands for what is another each time. */
  answer: Record<string, string>;
}

const restAnswer = (message: string, code: string, more: Record<string, string> = {}) => ({
  error: message,
  message,
  code,
  ...more,
});

const bucket = (name: string, more: object = {}): ShownCall => ({
  route: "POST /api/v1/kv/buckets",
  body: { name, ...more },
});

const streams = "POST /svc.v1.EntityStreamService";
const appended = (entityId: string, expectedVersion: string): ShownCall => ({
  route: `${streams}/AppendEvent`,
  body: { entityId, entityType: "order", eventName: "order.paid", data: { total: 42.5 }, expectedVersion },
});

const quotas = (body: object): ShownCall => ({
  route: "PUT /api/v1/environments/{environment}/quotas",
  body,
});

/** Of every kind: one that is missing is a type error. */
export const faultPages: Record<FaultKind, FaultPage> = {
  invalid_argument: {
    when: "A field is missing, unknown, of another type, too long, or breaks a rule that the message states.",
    remedy: "Correct the field; the same call fails again.",
    call: bucket("my carts"),
    answer: restAnswer("name: must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -", "invalid_argument", {
      field: "name",
    }),
  },
  unauthenticated: {
    when: "The request carries no key and no session, or one that was deleted, has expired or was logged out.",
    remedy:
      "Send a key as `Authorization: Bearer …`, or log in again. `svc doctor` says whether the server knows the key.",
    call: { route: "GET /api/v1/kv/buckets" },
    as: "nobody",
    answer: restAnswer("Authentication required", "unauthenticated"),
  },
  permission_denied: {
    when: "The server knows who asks, and refuses: the message has the action, and the built-in roles that grant it, or the policy that denies.",
    remedy:
      "Ask an admin for a role that grants the action (`svc apikey set-roles`), or look at the deny policies of your roles. " +
      "`GET /api/v1/auth/session` lists what your roles grant.",
    call: bucket("baskets"),
    as: "viewer",
    answer: restAnswer(
      "Insufficient permissions: secrets:manage is granted by admin, developer",
      "permission_denied",
    ),
  },
  not_found: {
    when: "The id is wrong, the thing was deleted, or it stands in another environment.",
    remedy: "Check the id and the environment (`X-Svc-Environment`; a key has its own).",
    call: { route: "GET /api/v1/kv/buckets/none" },
    answer: restAnswer("bucket none not found", "not_found"),
  },
  already_exists: {
    when: "A second thing is made under a name, or an idempotency key comes again with another kind of fact.",
    remedy: "Take another name or key, or use what there is.",
    before: [bucket("orders")],
    call: bucket("orders"),
    answer: restAnswer('a bucket named "orders" exists already', "already_exists", { field: "name" }),
  },
  failed_precondition: {
    when: "A deleted entity stream gets an event, a paused thing is paused again, a stream of a worker names a function that is not registered, a log is read below what is kept.",
    remedy: "Read the thing, do what the message asks for, then call again.",
    before: [
      appended("order-1002", "0"),
      { route: `${streams}/DeleteStream`, body: { entityId: "order-1002" } },
    ],
    call: appended("order-1002", "1"),
    answer: {
      code: "failed_precondition",
      message: "stream order-1002 is deleted and takes no more events",
    },
  },
  aborted: {
    when: "Somebody else was first: a stream has another version than was expected, a run went to another worker (`STALE_EXECUTION`).",
    remedy: "Read again, decide again, write again. A worker drops the run.",
    call: appended("order-1001", "3"),
    answer: { code: "aborted", message: "version conflict: expected 3, got 0" },
  },
  precondition_failed: {
    when: "A key has another revision than `If-Match` names, or exists although `If-None-Match: *` wants it new.",
    remedy: "Read the value with its revision and decide again.",
    call: {
      route: "PUT /api/v1/kv/buckets/orders/keys/o-1001",
      headers: { "If-Match": "7", "Content-Type": "application/octet-stream" },
      body: "two items",
    },
    answer: restAnswer("key o-1001 does not exist", "precondition_failed", { field: "If-Match" }),
  },
  method_not_allowed: {
    when: "A route that exists is called by another method.",
    remedy: "Use a method that the header `Allow` names.",
    call: { route: "DELETE /api/v1/capabilities" },
    answer: restAnswer("DELETE is not allowed here", "method_not_allowed"),
  },
  payload_too_large: {
    when: "A body is larger than the server takes, or a value larger than its bucket does.",
    remedy: "Send less: store large data elsewhere and send its address.",
    before: [bucket("notes", { max_value_size: 4 })],
    call: {
      route: "PUT /api/v1/kv/buckets/notes/keys/n-1",
      headers: { "Content-Type": "application/octet-stream" },
      body: "hello",
    },
    answer: restAnswer("value: at most 4 bytes in bucket notes", "payload_too_large", { field: "value" }),
  },
  unsupported_media_type: {
    when: "A route that reads JSON gets a form, a text, or a body without a type.",
    remedy: "Send `Content-Type: application/json`.",
    call: { route: "POST /api/v1/kv/buckets", headers: { "Content-Type": "text/plain" }, body: "orders" },
    answer: restAnswer("Content-Type must be application/json, not text/plain", "unsupported_media_type"),
  },
  resource_exhausted: {
    when:
      "A key asks more often than its rate, a quota of the environment is used up (`QUOTA_EXCEEDED`), too much is open at a node " +
      "(`LIMIT_EXCEEDED`), or there are as many things as there may be.",
    remedy:
      "Wait as many seconds as `Retry-After` says. If it comes again and again, raise the limit or ask for less.",
    before: [quotas({ stored_bytes: 0 })],
    call: {
      route: "POST /svc.v1.SvcService/Emit",
      body: { event: "order.placed", data: { total: 42.5 } },
    },
    after: [quotas({ stored_bytes: null })],
    answer: {
      code: "resource_exhausted",
      message: "quota stored_bytes of the environment is used up: limit 0, used …, again once events expire",
    },
  },
  unimplemented: {
    when: "A procedure, an encoding or a feature is asked for that this server does not have: mostly a client that is newer than the server.",
    remedy:
      "Ask `GET /api/v1/capabilities` for the server's version and what works there; upgrade servers before clients.",
    call: {
      route: "POST /api/v1/kv/buckets",
      headers: { "Content-Encoding": "br" },
      body: { name: "orders" },
    },
    answer: restAnswer("unknown Content-Encoding br: supported are gzip and identity", "unimplemented"),
  },
  unavailable: {
    when: "The database or the bus does not answer, a node is being stopped, or a read did not come to its `X-Svc-Min-Sequence` in time.",
    remedy:
      "Try again with growing pauses; the SDK does so for reads and for emits with a key. `GET /ready` says what the server lacks, " +
      "`svc doctor` what to do about it.",
    call: {
      route: "POST /svc.v1.SvcService/ListRuns",
      headers: { "X-Svc-Min-Sequence": "1.1000000", "Connect-Timeout-Ms": "1200" },
      body: {},
    },
    answer: {
      code: "unavailable",
      message: "X-Svc-Min-Sequence: the log of events is at …, not at 1000000 yet",
    },
  },
  deadline_exceeded: {
    when: "The caller's own deadline is over (`Connect-Timeout-Ms`, `grpc-timeout`), or a query takes longer than its `timeout_ms`.",
    remedy: "Read whether it happened; repeat it with the same idempotency key, and with more time.",
    before: [
      {
        route: "POST /svc.v1.SvcService/RegisterFunction",
        body: { id: "unserved", triggers: [{ event: "unserved.asked" }] },
      },
    ],
    call: {
      route: "POST /svc.v1.SvcService/InvokeFunctionSync",
      headers: { "Connect-Timeout-Ms": "300" },
      body: { functionId: "unserved", data: {} },
    },
    answer: { code: "deadline_exceeded", message: "the operation did not end within 300 ms" },
  },
  internal: {
    when: "Something happened that the server holds impossible. No input should bring it about.",
    remedy:
      "Look the id up in the log of the server, and report it. Repeat the call with the same idempotency key.",
    answer: restAnswer("internal error (id …)", "internal"),
  },
};
