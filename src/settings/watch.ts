import { boolean, choice, fraction, integer, line, oneUrl, setting } from "../kit/setting.ts";

/** Metrics, traces and logs. */
export const watchSettings = {
  metricsEnabled: setting({
    env: "SVC_METRICS_ENABLED",
    parse: boolean,
    fallback: false,
    about: "Serve GET /metrics for Prometheus, without authentication.",
  }),
  metricsPort: setting({
    env: "SVC_METRICS_PORT",
    parse: integer(0, 65_535),
    fallback: undefined,
    otherwise: "the port of everything else",
    about: "A port for /metrics alone, on the same address; 0 takes a free one.",
  }),
  otelEndpoint: setting({
    env: "SVC_OTEL_ENDPOINT",
    parse: oneUrl("http", "https"),
    fallback: undefined,
    about: "OpenTelemetry collector that traces are sent to (OTLP over HTTP), such as http://127.0.0.1:4318.",
  }),
  otelSampleRate: setting({
    env: "SVC_OTEL_SAMPLE_RATE",
    parse: fraction,
    fallback: 1,
    about: "Share of the traces that are kept; a caller's traceparent decides for its own.",
  }),
  otelServiceName: setting({
    env: "SVC_OTEL_SERVICE_NAME",
    parse: line("NAME"),
    fallback: "svc",
    about: "Name of this service in traces.",
  }),
  logLevel: setting({
    env: "LOG_LEVEL",
    parse: choice("debug", "info", "warn", "error", "silent"),
    fallback: "info",
    about: "Least severe lines that are logged.",
  }),
  logFormat: setting({
    env: "LOG_FORMAT",
    parse: choice("json", "text"),
    fallback: undefined,
    otherwise: "text on a terminal, json elsewhere",
    about: "Form of the log.",
  }),
};
