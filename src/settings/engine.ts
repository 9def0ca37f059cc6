import { requestBodyBytesMax } from "../kit/limits.ts";
import { boolean, integer, networks, setting } from "../kit/setting.ts";

const hour = 60 * 60 * 1000;

/** How workers and push endpoints are called and waited for. */
export const engineSettings = {
  pushTimeoutMs: setting({
    env: "SVC_PUSH_TIMEOUT_MS",
    parse: integer(100, hour, "milliseconds"),
    fallback: 10_000,
    about: "How long a call to a push endpoint may take, whatever the function's own limits are.",
  }),
  pushAllowPrivate: setting({
    env: "SVC_PUSH_ALLOW_PRIVATE",
    parse: networks,
    fallback: undefined as readonly string[] | "all" | undefined,
    about:
      "Private networks in which push endpoints, webhooks, tools, alerts and providers of sign-in may be called, or true for all; without it only public addresses are. --dev allows loopback.",
  }),
  outwardCallsMax: setting({
    env: "BUN_CONFIG_MAX_HTTP_REQUESTS",
    parse: integer(256, 65_535, "calls"),
    fallback: 256,
    about:
      "Calls outward at a time: 400 where `svc serve` starts the runtime. All but 132 of them may be to push endpoints.",
  }),
  leaseMs: setting({
    env: "SVC_LEASE_MS",
    parse: integer(1_000, hour, "milliseconds"),
    fallback: 90_000,
    about: "How long a worker may be silent before its run goes to another.",
  }),
  pollHoldMs: setting({
    env: "SVC_POLL_HOLD_MS",
    parse: integer(0, 60_000, "milliseconds"),
    fallback: 5_000,
    about: "How long a worker's poll waits for work; 0 answers at once.",
  }),
  capacityAdmission: setting({
    env: "SVC_CAPACITY_ADMISSION",
    parse: boolean,
    fallback: true,
    about: "Admit runs by capacity, and take progress reports.",
  }),
};

/** The most connections, the largest request, and how a shutdown drains. */
export const servingSettings = {
  connectionsMax: setting({
    env: "SVC_CONNECTIONS_MAX",
    parse: integer(0, 1_000_000, "connections"),
    fallback: undefined,
    otherwise: "three quarters of the files that the process may open",
    about:
      "Connections of clients at a time to this node, on Linux; beyond it the longest silent ones are closed. 0 sets no limit.",
  }),
  requestBodyBytesMax: setting({
    env: "SVC_REQUEST_BODY_BYTES_MAX",
    parse: integer(64 * 1024, 256 * 1024 * 1024, "bytes"),
    fallback: requestBodyBytesMax,
    about: "Largest request body; reports of workers may have 9 MiB and 64 KiB.",
  }),
  drainNoticeMs: setting({
    env: "SVC_DRAIN_NOTICE_MS",
    parse: integer(0, hour, "milliseconds"),
    fallback: 0,
    about: "How long a shutdown still serves while `/ready` says draining, for load balancers to notice.",
  }),
  drainMs: setting({
    env: "SVC_DRAIN_MS",
    parse: integer(0, hour, "milliseconds"),
    fallback: 10_000,
    about: "How long open requests, and calls of endpoints, may take to finish at a shutdown.",
  }),
};
