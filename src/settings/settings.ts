import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { readSettings, settingsHelp, settingsTable, type Values } from "../kit/setting.ts";
import { engineSettings, servingSettings } from "./engine.ts";
import { firstBootSettings } from "./first-boot.ts";
import { listenSettings } from "./listen.ts";
import { rateLimitSettings, requestSettings } from "./requests.ts";
import { auditSettings, retentionConflicts, retentionSettings } from "./retention.ts";
import { busSettings, storeSettings } from "./store.ts";
import { watchSettings } from "./watch.ts";
import { alertSettings, outboxSettings, webhookSettings } from "./webhooks.ts";

/** Every setting of the server, in the order in which a newcomer meets them. */
export const settings = {
  ...listenSettings,
  ...storeSettings,
  ...busSettings,
  ...outboxSettings,
  ...firstBootSettings,
  ...requestSettings,
  ...auditSettings,
  ...rateLimitSettings,
  ...engineSettings,
  ...webhookSettings,
  ...alertSettings,
  ...retentionSettings,
  ...servingSettings,
  ...watchSettings,
};

export type Config = Values<typeof settings>;

export type Parsed = { ok: true; config: Config } | { ok: false; errors: string[] };

/** Read by the SDK, the CLI and workers, which often share an environment with a server. */
const clientVariables = new Set([
  "SVC_SERVER_URL",
  "SVC_URL",
  "SVC_API_KEY",
  "SVC_ENV",
  "SVC_LOG_LEVEL",
  "SVC_PROFILE",
  "SVC_WORKER_ID",
  "SVC_MCP_BEARER_TOKEN",
]);
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
  errors.push(...retentionConflicts(origins));
  if ((values.smtpUrl === undefined) !== (values.smtpFrom === undefined)) {
    errors.push("SVC_SMTP_URL and SVC_SMTP_FROM: set both or neither");
  }
  if (values.natsMirror && values.natsUrl === undefined) {
    errors.push("SVC_NATS_MIRROR: needs NATS_URL, there is nothing to mirror to");
  }
  if (values.grpcPort && values.grpcPort === values.port) {
    errors.push("--port and --grpc-port: must differ");
  }
  if (errors.length > 0) return { ok: false, errors };
  // A flag says what this start wants, whatever variables the shell happens to hold.
  const fileWanted = origins.db === "flag";
  return { ok: true, config: fileWanted ? { ...values, databaseUrl: undefined } : values };
}

/** Where the admin key of the first boot is written. */
export function bootstrapKeyFileOf(config: Config): string {
  if (config.bootstrapKeyFile !== undefined) return config.bootstrapKeyFile;
  if (config.databaseUrl !== undefined) return join(tmpdir(), ".svc_bootstrap_key.json");
  return join(dirname(config.db), ".ssvc_bootstrap_key.json");
}

/** Where the master key stands when no setting gives it. */
export const masterKeyFileOf = (config: Pick<Config, "db">): string =>
  join(dirname(config.db), ".svc_master_key");

/** The settings of `serve` for a terminal. */
export const settingsText = (): string => settingsHelp(settings);

export const configurationTable = (): string => settingsTable(settings);
