/** What the Grafana dashboard shows, a row of panels a matter; `bun run refresh` writes `dashboard.json` from it. */
export interface PanelSpec {
  title: string;
  /** Of Grafana: `reqps`, `s`, `short`, `percentunit`. */
  unit: string;
  /** Expressions of PromQL by what their lines are called. */
  lines: Readonly<Record<string, string>>;
}

export interface RowSpec {
  title: string;
  panels: readonly PanelSpec[];
}

const of = (metric: string, more = "") => `${metric}{job=~"$job"${more && `,${more}`}}`;
const perS = (metric: string, by: string, more?: string) =>
  `sum by (${by}) (rate(${of(metric, more)}[$__rate_interval]))`;
const p = (share: number, metric: string, by = "", more?: string) =>
  `histogram_quantile(${share}, sum by (le${by && `, ${by}`}) (rate(${of(`${metric}_bucket`, more)}[$__rate_interval])))`;
const most = (metric: string, by = "", more?: string) => `max by (${by}) (${of(metric, more)})`;
const total = (metric: string, by = "", more?: string) => `sum by (${by}) (${of(metric, more)})`;

export const rows: readonly RowSpec[] = [
  {
    title: "What is done",
    panels: [
      {
        title: "Events and runs",
        unit: "cps",
        lines: {
          "events emitted": perS("svc_events_emitted_total", ""),
          "runs {{status}}": perS("svc_runs_total", "status"),
          "messages of topics": perS("svc_topic_messages_published_total", ""),
          "appends {{outcome}}": perS("svc_stream_appends_total", "outcome"),
        },
      },
      {
        title: "Runs that are not over, workers",
        unit: "short",
        lines: {
          "active runs": most("svc_active_runs"),
          workers: most("svc_workers_connected"),
          "without a worker, per minute": `60 * ${perS("svc_unserved_runs_total", "")}`,
        },
      },
      {
        title: "How long runs and steps take",
        unit: "s",
        lines: {
          "run p50": p(0.5, "svc_run_duration_seconds"),
          "run p99": p(0.99, "svc_run_duration_seconds"),
          "step p99": p(0.99, "svc_step_duration_seconds"),
        },
      },
    ],
  },
  {
    title: "Callers",
    panels: [
      {
        title: "Requests by status",
        unit: "reqps",
        lines: { "{{status_code}}": perS("svc_http_requests_total", "status_code") },
      },
      {
        title: "Requests, p99 by route (held polls left out)",
        unit: "s",
        lines: {
          "{{method}} {{path}}": `topk(10, ${p(0.99, "svc_http_request_duration_seconds", "method, path", 'path!~".*/(jobs|events/poll)"')})`,
        },
      },
      {
        title: "Refused",
        unit: "cps",
        lines: {
          "flush {{flush}}": perS("svc_flush_refused_total", "flush"),
          quotas: perS("svc_quota_refusals_total", ""),
          "schemas {{outcome}}": perS("svc_schema_breaches_total", "outcome"),
          "flow control {{option}} {{outcome}}": perS("svc_flow_notices_total", "option, outcome"),
        },
      },
    ],
  },
  {
    title: "Store",
    panels: [
      {
        title: "Flushes, p99",
        unit: "s",
        lines: { "{{flush}}": p(0.99, "svc_flush_duration_seconds", "flush") },
      },
      {
        title: "Waiting for a flush",
        unit: "short",
        lines: { "{{flush}}": total("svc_flush_waiting", "flush") },
      },
      {
        title: "Connections",
        unit: "short",
        lines: {
          "{{pool}} in use": total("svc_store_pool_in_use", "pool"),
          "{{pool}} open": total("svc_store_pool_connections", "pool"),
          "waiting for {{pool}}": total("svc_store_pool_waiting", "pool"),
          "waiting for a lock": most("svc_store_lock_waiters"),
        },
      },
    ],
  },
  {
    title: "Background",
    panels: [
      {
        title: "Since the last progress of a loop",
        unit: "s",
        lines: {
          "{{loop}}": `topk(10, time() - ${most("svc_loop_last_progress_timestamp_seconds", "loop")})`,
        },
      },
      {
        title: "Lags",
        unit: "short",
        lines: {
          "outbox, s": most("svc_outbox_lag_seconds"),
          "projections {{mode}}, positions": most("svc_projection_lag_positions", "mode"),
          "webhooks, positions": most("svc_webhook_lag_positions"),
          "mirror, events": most("svc_mirror_lag_events"),
        },
      },
      {
        title: "Dead letters, and rows out of balance",
        unit: "short",
        lines: {
          outbox: most("svc_outbox_dead_letters"),
          webhooks: most("svc_webhook_dead_letters"),
          "{{check}}": `${most("svc_integrity_offenders", "check")} > 0`,
        },
      },
    ],
  },
  {
    title: "Nodes",
    panels: [
      {
        title: "Bus and clock",
        unit: "short",
        lines: {
          "{{instance}} on the bus": total("svc_bus_connected", "instance"),
          "{{instance}} clock uncertainty, s": total("svc_clock_uncertainty_seconds", "instance"),
        },
      },
      {
        title: "Memory",
        unit: "bytes",
        lines: { "{{instance}}": total("process_resident_memory_bytes", "instance") },
      },
      {
        title: "Processor and event loop",
        unit: "short",
        lines: {
          "{{instance}} cores": perS("process_cpu_seconds_total", "instance"),
          "{{instance}} event loop p99, s": total("nodejs_eventloop_lag_p99_seconds", "instance"),
        },
      },
    ],
  },
];
