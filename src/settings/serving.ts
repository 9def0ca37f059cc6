import { requestBodyBytesMax } from "../kit/limits.ts";
import { setting } from "../kit/setting.ts";
import { integer } from "../kit/setting-kinds.ts";

const hour = 60 * 60 * 1000;

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
