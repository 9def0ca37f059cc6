import type { Clock } from "../kit/clock.ts";
import type { Log } from "../kit/log.ts";
import { type Counter, type Histogram, secondsBuckets } from "../kit/metrics.ts";
import type { Span } from "../kit/trace.ts";
import type { Watch } from "../kit/watch.ts";
import type { Edge, Observation } from "./call.ts";

/** The protocol of a request, as logged. */
function protocolOf(request: Request, path: string): string {
  const contentType = request.headers.get("content-type") ?? "";
  if (contentType.startsWith("application/grpc-web")) return "grpc-web";
  if (contentType.startsWith("application/grpc")) return "grpc";
  return path.startsWith("/svc.v1.") ? "connect" : "rest";
}

/** Clients may send any method; a metric label must have few values. */
const methods = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);

export interface FollowHost extends Watch {
  clock: Clock;
  log: Log;
  /** Logs every request, not only failures. */
  everyRequest: boolean;
}

/** Reports requests to metrics, traces and the log. Never a body, a query or a header. */
export function followRequests({ clock, log, metrics, tracer, everyRequest }: FollowHost): {
  observe: Edge["observe"];
  follow: NonNullable<Edge["follow"]>;
  traceOf: NonNullable<Edge["traceOf"]>;
} {
  const observed = new WeakMap<Request, Observation>();
  const spans = new WeakMap<Request, Span>();
  const requests = metrics.counter({
    name: "svc_http_requests_total",
    help: "Requests by the status they were answered with; path is the route's pattern, * for none.",
    labels: ["status_code", "method", "path"],
  });
  const seconds = metrics.histogram({
    name: "svc_http_request_duration_seconds",
    help: "From a request's arrival to the head of its answer; held polls wait on purpose.",
    labels: ["method", "path"],
    buckets: secondsBuckets,
  });

  return {
    observe(observation) {
      // Successful requests are logged only on demand.
      if (everyRequest || tracer.on || observation.outcome !== "ok")
        observed.set(observation.request, observation);
    },

    traceOf: (request) => spans.get(request)?.traceparent,

    follow({ method, path, isPublic }) {
      const name = `${method} ${path}`;
      const wordOf = (request: Request) =>
        method !== "*" ? method : methods.has(request.method) ? request.method : "OTHER";
      // The series is looked up once for each route and status.
      const seriesOf = new Map<string, { count: Counter; took: Histogram }>();
      const series = (word: string, status: number) => {
        const key = `${word}${status}`;
        let found = seriesOf.get(key);
        if (!found) {
          found = { count: requests(String(status), word, path), took: seconds(word, path) };
          seriesOf.set(key, found);
        }
        return found;
      };
      return (request) => {
        const startedAt = clock.elapsed();
        const parent = tracer.on ? request.headers.get("traceparent") : undefined;
        const span = tracer.start(name, "server", parent, isPublic ? "stranger" : undefined);
        if (tracer.on) spans.set(request, span);
        return (answer) => {
          const ms = clock.elapsed() - startedAt;
          const response = answer instanceof Response ? answer : undefined;
          const status = response?.status ?? (answer === "upgraded" ? 101 : 500);
          const word = wordOf(request);
          if (metrics.on) {
            const { count, took } = series(word, status);
            count.add();
            took.observe(ms / 1000);
          }
          const isLogged = everyRequest || status >= 500;
          if (!isLogged && !tracer.on) return;
          const about = observed.get(request);
          span.set("http.request.method", word);
          span.set("http.route", path);
          span.set("http.response.status_code", status);
          if (about) {
            span.set("svc.operation", about.operation.name);
            if (about.environmentId !== "") span.set("svc.environment_id", about.environmentId);
          }
          span.end(status >= 500 ? (about?.outcome ?? "failed") : undefined);
          if (!isLogged) return;
          const line = {
            requestId: response?.headers.get("x-request-id") ?? about?.requestId,
            operation: about?.operation.name,
            route: `${word} ${path}`,
            protocol: protocolOf(request, path),
            status,
            ms: Math.round(ms * 10) / 10,
            ...(about && {
              outcome: about.outcome,
              callerKind: about.caller.kind,
              callerId: about.caller.id,
            }),
            ...(about && about.environmentId !== "" && { environmentId: about.environmentId }),
          };
          log[status >= 500 ? "info" : "debug"]("request.answered", line);
        };
      };
    },
  };
}
