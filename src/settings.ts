import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { requestBodyBytesMax } from "./kit/limits.ts";
import { readSettings, setting, settingsHelp, settingsTable, type Values } from "./kit/setting.ts";
import {
  boolean,
  choice,
  fraction,
  integer,
  line,
  matching,
  networks,
  oneUrl,
  url,
} from "./kit/setting-kinds.ts";
import { auditSettings } from "./settings-audit.ts";
import { outboxSettings } from "./settings-outbox.ts";

const hour = 60 * 60 * 1000;

/** Every setting of the server, in the order in which a newcomer meets them. */
export const settings = {
  port: setting({
    flag: "--port",
    env: "SVC_PORT",
    parse: integer(0, 65_535),
    fallback: 9123,
    about: "Port every surface listens on; 0 takes a free one.",
  }),
  host: setting({
    flag: "--host",
    env: "SVC_HOST",
    parse: line("ADDRESS"),
    fallback: "127.0.0.1",
    about: "Address to listen on; 0.0.0.0 for every network of this machine.",
  }),
  grpcPort: setting({
    flag: "--grpc-port",
    env: "SVC_GRPC_PORT",
    parse: integer(0, 65_535),
    fallback: 9190,
    about: "Port for gRPC; 0 switches it off.",
  }),
  tlsCertFile: setting({
    env: "SVC_TLS_CERT_FILE",
    parse: line("FILE"),
    fallback: undefined,
    about: "Certificate chain (PEM) of both ports; with SVC_TLS_KEY_FILE, and then TLS only.",
  }),
  tlsKeyFile: setting({
    env: "SVC_TLS_KEY_FILE",
    parse: line("FILE"),
    fallback: undefined,
    about: "Private key (PEM) of SVC_TLS_CERT_FILE.",
  }),
  dev: setting({
    flag: "--dev",
    env: "SVC_DEV",
    parse: boolean,
    fallback: false,
    about: "No authentication: every caller is admin. Loopback addresses only.",
  }),
  db: setting({
    flag: "--db",
    env: "SVC_DB",
    parse: line("FILE"),
    fallback: ".svc/svc.db",
    about: "Database file of a single node (libSQL).",
  }),
  databaseUrl: setting({
    flag: "--database-url",
    env: "SVC_DATABASE_URL",
    parse: url("postgres", "postgresql"),
    fallback: undefined,
    secret: true,
    about: "PostgreSQL instead of the file; needed for more than one node.",
  }),
  databaseTlsCaFile: setting({
    env: "SVC_DATABASE_TLS_CA_FILE",
    parse: line("FILE"),
    fallback: undefined,
    about: "Only a PostgreSQL with a certificate of this CA (PEM) and its own host name is spoken to.",
  }),
  poolSize: setting({
    env: "SVC_POOL_SIZE",
    parse: integer(2, 500, "connections"),
    fallback: 25,
    about: "PostgreSQL connections of this node.",
  }),
  libsqlDriver: setting({
    env: "SVC_LIBSQL_DRIVER",
    parse: choice("libsql", "bun"),
    fallback: "libsql",
    about: "What opens the database file.",
  }),
  natsUrl: setting({
    flag: "--nats-url",
    env: "NATS_URL",
    parse: url("nats", "tls", "ws", "wss"),
    fallback: undefined,
    secret: true,
    about: "Message bus between nodes; without it this node is alone. May hold user:password or a token.",
  }),
  natsCredsFile: setting({
    env: "NATS_CREDS_FILE",
    parse: line("FILE"),
    fallback: undefined,
    about: "Credentials (JWT and seed) for the message bus, read again at every connection.",
  }),
  natsTlsCaFile: setting({
    env: "NATS_TLS_CA_FILE",
    parse: line("FILE"),
    fallback: undefined,
    about: "CA (PEM) that the message bus must have its certificate from; switches TLS on.",
  }),
  natsTlsCertFile: setting({
    env: "NATS_TLS_CERT_FILE",
    parse: line("FILE"),
    fallback: undefined,
    about: "Certificate (PEM) of this node for the message bus; with NATS_TLS_KEY_FILE.",
  }),
  natsTlsKeyFile: setting({
    env: "NATS_TLS_KEY_FILE",
    parse: line("FILE"),
    fallback: undefined,
    about: "Private key (PEM) of NATS_TLS_CERT_FILE.",
  }),
  ...outboxSettings,
  nodeId: setting({
    flag: "--node-id",
    env: "SVC_NODE_ID",
    parse: matching(/^[A-Za-z0-9_-]{1,63}$/, "1 to 63 of A-Z a-z 0-9 _ -", "NAME"),
    fallback: undefined,
    otherwise: "a new one at every start",
    about: "Name of this node among its kind.",
  }),
  bootstrapKeyFile: setting({
    flag: "--bootstrap-key-file",
    env: "SVC_BOOTSTRAP_KEY_FILE",
    parse: line("FILE"),
    fallback: undefined,
    otherwise:
      "`.ssvc_bootstrap_key.json` beside the database file, or `.svc_bootstrap_key.json` in the temporary folder",
    about: "Where the first boot writes the admin key (mode 0400).",
  }),
  bootstrapAdminKey: setting({
    env: "SVC_BOOTSTRAP_ADMIN_KEY",
    parse: matching(/^[\x21-\x7e]{20,200}$/, "20 to 200 printable characters without spaces", "KEY"),
    fallback: undefined,
    otherwise: "a random one",
    secret: true,
    about: "The admin key of the first boot.",
  }),
  bootstrapAdminPassword: setting({
    env: "SVC_BOOTSTRAP_ADMIN_PASSWORD",
    parse: matching(/^[^\0\r\n]{8,256}$/, "8 to 256 characters on one line", "PASSWORD"),
    fallback: undefined,
    otherwise: "a random one",
    secret: true,
    about: "The dashboard password of the first boot.",
  }),
  masterKey: setting({
    env: "SVC_MASTER_KEY",
    parse: matching(/^[0-9a-fA-F]{64}$/, "32 bytes in hex, 64 characters", "HEX"),
    fallback: undefined,
    otherwise: "a random one in `.svc_master_key` beside the database file",
    secret: true,
    about: "What secrets are sealed with; the same on every node.",
  }),
  jwtSecret: setting({
    env: "SVC_JWT_SECRET",
    parse: matching(/^[\x21-\x7e]{32,512}$/, "32 to 512 printable characters without spaces", "SECRET"),
    fallback: undefined,
    otherwise: "a random one, kept sealed in the database",
    secret: true,
    about: "What dashboard tokens are signed with.",
  }),
  signingKey: setting({
    env: "SVC_SIGNING_KEY",
    parse: matching(/^[\x21-\x7e]{32,512}$/, "32 to 512 printable characters without spaces", "SECRET"),
    fallback: undefined,
    otherwise: "a random one, kept sealed in the database",
    secret: true,
    about: "What requests to push endpoints are signed with.",
  }),
  trustProxy: setting({
    env: "SVC_TRUST_PROXY",
    parse: boolean,
    fallback: false,
    about:
      "Believe the last entries of X-Forwarded-For and X-Forwarded-Proto: a load balancer of yours writes them.",
  }),
  strictEnvironment: setting({
    env: "SVC_STRICT_ENVIRONMENT",
    parse: boolean,
    fallback: false,
    about: "Refuse an unknown environment name instead of falling back to env_default.",
  }),
  strictInput: setting({
    env: "SVC_STRICT_INPUT",
    parse: boolean,
    fallback: false,
    about:
      "Refuse fields that the server does not know in RPC and worker requests, instead of passing them over: for finding misspelt ones.",
  }),
  ...auditSettings,
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
      "Private networks in which push endpoints may be called, or true for all; without it only public addresses are. --dev allows loopback.",
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
  eventRetentionDays: setting({
    env: "SVC_EVENT_RETENTION_DAYS",
    parse: integer(0, 36_500, "days"),
    fallback: 0,
    about: "How long events are kept; 0 keeps them for ever.",
  }),
  topicRetentionHours: setting({
    env: "SVC_TOPIC_RETENTION_HOURS",
    parse: integer(0, 876_000, "hours"),
    fallback: 72,
    about: "How long messages of developer topics are kept; 0 keeps them for ever.",
  }),
  runRetentionDays: setting({
    env: "SVC_RUN_RETENTION_DAYS",
    parse: integer(0, 36_500, "days"),
    fallback: 90,
    about: "How long a run is kept behind its end, where its function does not say; 0 keeps it for ever.",
  }),
  requestBodyBytesMax: setting({
    env: "SVC_REQUEST_BODY_BYTES_MAX",
    parse: integer(64 * 1024, 256 * 1024 * 1024, "bytes"),
    fallback: requestBodyBytesMax,
    about: "Largest request body.",
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
    about: "How long open requests may take to finish at a shutdown.",
  }),
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

export type Config = Values<typeof settings>;

export type Parsed = { ok: true; config: Config } | { ok: false; errors: string[] };

/** Read by the SDK, the CLI and workers, which often share an environment with a server. */
const clientVariables = new Set(["SVC_SERVER_URL", "SVC_URL", "SVC_API_KEY", "SVC_ENV", "SVC_LOG_LEVEL"]);
const elsewhere = (name: string) => clientVariables.has(name) || name.startsWith("SVC_TEST_");

export const isLoopback = (host: string): boolean =>
  host === "localhost" || host === "::1" || host === "[::1]" || /^127(\.\d{1,3}){3}$/.test(host);

/** The settings of one start, from flags, variables and defaults; or every reason why not. */
export function parseSettings(
  argv: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
): Parsed {
  const outcome = readSettings(settings, { argv, environment, elsewhere });
  if (!outcome.ok) return outcome;
  const { values, origins } = outcome;
  const errors: string[] = [];
  if (values.dev && !isLoopback(values.host)) {
    errors.push(
      `--dev: opens the server to anyone who reaches it, so --host must be a loopback address, not ${values.host}`,
    );
  }
  if (origins.db === "flag" && origins.databaseUrl === "flag") {
    errors.push("--db and --database-url: choose one");
  }
  if ((values.tlsCertFile === undefined) !== (values.tlsKeyFile === undefined)) {
    errors.push("SVC_TLS_CERT_FILE and SVC_TLS_KEY_FILE: set both or neither");
  }
  if ((values.natsTlsCertFile === undefined) !== (values.natsTlsKeyFile === undefined)) {
    errors.push("NATS_TLS_CERT_FILE and NATS_TLS_KEY_FILE: set both or neither");
  }
  if (values.natsMirror && values.natsUrl === undefined) {
    errors.push("SVC_NATS_MIRROR: needs NATS_URL, there is nothing to mirror to");
  }
  if (values.grpcPort !== 0 && values.grpcPort === values.port) {
    errors.push("--port and --grpc-port: must differ");
  }
  if (errors.length > 0) return { ok: false, errors };
  // A flag says what this start wants, whatever variables the shell happens to hold.
  const fileWanted = origins.db === "flag";
  return { ok: true, config: fileWanted ? { ...values, databaseUrl: undefined } : values };
}

/** Where the admin key of the first boot is written (proto/README.md 'Bootstrap'). */
export function bootstrapKeyFileOf(config: Config): string {
  if (config.bootstrapKeyFile !== undefined) return config.bootstrapKeyFile;
  if (config.databaseUrl !== undefined) return join(tmpdir(), ".svc_bootstrap_key.json");
  return join(dirname(config.db), ".ssvc_bootstrap_key.json");
}

/** Where the master key stands when no setting gives it. */
export const masterKeyFileOf = (config: Pick<Config, "db">): string =>
  join(dirname(config.db), ".svc_master_key");

export const help = (): string => `svc: events become durable runs.

  serve     start the server (what happens without a command)
  backup    copy the database file, also while its server runs: --db FILE --to FILE [--force]
  restore   put a backup in place: --from FILE --db FILE [--force]; after pg_restore: --epoch --database-url URL
  tail      follow what happens on a server: PATTERN... (svc tail --help)
  help      show this
  version   show the version

Settings of serve, each by flag or variable [default]:

${settingsHelp(settings)}`;

export const configurationTable = (): string => settingsTable(settings);

if (import.meta.main) process.stdout.write(configurationTable());
