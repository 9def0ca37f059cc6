import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import type { Command } from "commander";
import { suggestion } from "../kit/setting.ts";
import { durationMs } from "../sdk/wire/duration.ts";
import { type Config, parseSettings, settings } from "../settings/settings.ts";
import { CommandFailure, exitCodes, type Io, usage } from "./io.ts";
import { configFileBytesMax } from "./limits.ts";

export const configKinds = ["Server", "Cluster", "Platform"] as const;

type SettingName = keyof typeof settings;

/** Where a setting of its own place stands; every other one stands under `settings` by its name. */
const places: Readonly<Record<string, SettingName>> = {
  port: "port",
  host: "host",
  "storage.url": "databaseUrl",
  "storage.path": "db",
  "storage.pool.maxConns": "poolSize",
  "nats.url": "natsUrl",
  "cluster.nodeId": "nodeId",
  "auth.devMode": "dev",
  "auth.masterKey": "masterKey",
  "observability.metrics.enabled": "metricsEnabled",
  "engine.pushTimeout": "pushTimeoutMs",
};

/** Read by other servers of this wire, and meaningless here. */
const idle: Readonly<Record<string, string>> = {
  "storage.pool.minConns": "the pool opens connections as they are needed",
  "nats.storeDir": "no message bus runs inside svc",
  "cluster.staleClaimThreshold": "leases say when a claim is stale: settings.leaseMs",
};

const drivers = { sqlite: "storage.path", libsql: "storage.path", postgres: "storage.url" } as const;

const Organizations = Type.Array(
  Type.Object(
    {
      name: Type.String({ minLength: 1 }),
      projects: Type.Optional(
        Type.Array(
          Type.Object(
            {
              name: Type.String({ minLength: 1 }),
              environments: Type.Optional(
                Type.Array(
                  Type.Object({ name: Type.String({ minLength: 1 }) }, { additionalProperties: false }),
                ),
              ),
            },
            { additionalProperties: false },
          ),
        ),
      ),
    },
    { additionalProperties: false },
  ),
);

export interface FiledOrganization {
  name: string;
  projects: { name: string; environments: { name: string }[] }[];
}

/** What a config file says. */
export interface FiledConfig {
  kind: (typeof configKinds)[number];
  config: Config;
  organizations: readonly FiledOrganization[];
  /** What is said and means nothing here. */
  notices: readonly string[];
}

type Filed = { ok: true; filed: FiledConfig } | { ok: false; errors: string[] };

const isMap = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const variable = /\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}/g;

class ConfigReader {
  readonly errors: string[] = [];
  readonly notices: string[] = [];
  /** The values of settings, under the names of their variables. */
  readonly values: Record<string, string> = {};
  readonly used = new Set<string>();
  readonly #environment: Io["environment"];

  constructor(environment: Io["environment"]) {
    this.#environment = environment;
  }

  /** A scalar as text, with `${VAR}` and `${VAR:-default}` filled in. */
  #text(path: string, value: unknown): string | undefined {
    if (typeof value === "number" || typeof value === "boolean") return String(value);
    if (typeof value !== "string") {
      this.errors.push(`${path}: must be one value, not ${value === null ? "nothing" : "a list or a map"}`);
      return undefined;
    }
    let isWhole = true;
    const text = value.replaceAll(variable, (_all, name: string, fallback?: string) => {
      this.used.add(name);
      const given = this.#environment[name] || fallback;
      if (given === undefined) {
        this.errors.push(`${path}: the variable ${name} is not set: set it, or write \${${name}:-default}`);
        isWhole = false;
      }
      return given ?? "";
    });
    return isWhole ? text : undefined;
  }

  #set(path: string, name: SettingName, value: unknown): void {
    const row: { env?: string; secret?: boolean; parse: { rule: string; read: (text: string) => unknown } } =
      settings[name];
    const given = this.#text(path, value);
    if (given === undefined || row.env === undefined) return;
    const text = path === "spec.engine.pushTimeout" ? msText(given) : given;
    if (row.parse.read(text) !== undefined) this.values[row.env] = text;
    else
      this.errors.push(
        `${path}: must be ${row.parse.rule}${row.secret ? "" : `, not ${JSON.stringify(given)}`}`,
      );
  }

  /** Every leaf below a map of `spec`. */
  readSpec(spec: Record<string, unknown>, above = ""): void {
    for (const [key, value] of Object.entries(spec)) {
      const place = above + key;
      const path = `spec.${place}`;
      if (Object.hasOwn(places, place)) this.#set(path, places[place]!, value);
      else if (Object.hasOwn(idle, place)) this.notices.push(`${path} is not used: ${idle[place]}`);
      else if (place === "storage.driver") this.#driver(value, spec);
      else if (place === "settings") this.#settings(value);
      else if (place === "platform") continue;
      else if (isMap(value) && isAbove(place)) this.readSpec(value, `${place}.`);
      else if (isAbove(place)) this.errors.push(`${path}: must be a map`);
      else this.errors.push(`${path}: unknown key${suggestion(key, keysBelow(above))}`);
    }
  }

  #driver(value: unknown, storage: Record<string, unknown>): void {
    const driver = this.#text("spec.storage.driver", value);
    if (driver === undefined) return;
    const needs = Object.hasOwn(drivers, driver) ? drivers[driver as keyof typeof drivers] : undefined;
    if (!needs) this.errors.push(`spec.storage.driver: must be one of ${Object.keys(drivers).join(", ")}`);
    else if (needs === "storage.url" && storage.url === undefined)
      this.errors.push("spec.storage.url: is needed by the driver postgres");
    else if (needs === "storage.path" && storage.url !== undefined)
      this.errors.push(`spec.storage.url: the driver ${driver} has a path, not a url`);
  }

  #settings(value: unknown): void {
    if (!isMap(value)) {
      this.errors.push("spec.settings: must be a map");
      return;
    }
    for (const [name, given] of Object.entries(value))
      if (Object.hasOwn(settings, name)) this.#set(`spec.settings.${name}`, name as SettingName, given);
      else
        this.errors.push(`spec.settings.${name}: unknown setting${suggestion(name, Object.keys(settings))}`);
  }
}

/** `30s` as milliseconds; a bare number counts as milliseconds already. */
function msText(text: string): string {
  if (/^\d+$/.test(text)) return text;
  try {
    return String(durationMs(text));
  } catch {
    return text;
  }
}

const known = [...Object.keys(places), ...Object.keys(idle), "storage.driver", "settings", "platform"];

const isAbove = (place: string): boolean => known.some((one) => one.startsWith(`${place}.`));

const keysBelow = (above: string): string[] =>
  known.filter((one) => one.startsWith(above)).map((one) => one.slice(above.length).split(".")[0]!);

function organizationsOf(platform: unknown, kind: string, errors: string[]): readonly FiledOrganization[] {
  if (platform === undefined) return [];
  if (kind !== "Platform") {
    errors.push("spec.platform: is of kind Platform alone");
    return [];
  }
  if (!isMap(platform)) {
    errors.push("spec.platform: must be a map");
    return [];
  }
  const { organizations = [], ...rest } = platform;
  for (const key of Object.keys(rest))
    errors.push(`spec.platform.${key}: unknown key${suggestion(key, ["organizations"])}`);
  const [wrong] = Value.Errors(Organizations, organizations);
  if (wrong) {
    const path = wrong.path.replaceAll("/", ".").replaceAll(/\.(\d+)/g, "[$1]");
    errors.push(`spec.platform.organizations${path}: ${wrong.message.toLowerCase()}`);
    return [];
  }
  return (organizations as typeof Organizations.static).map(({ name, projects = [] }) => ({
    name,
    projects: projects.map((one) => ({ name: one.name, environments: one.environments ?? [] })),
  }));
}

/** Reads a config file; flags of the command line beat it, and variables count only where it names them. */
export function readConfig(text: string, argv: readonly string[], environment: Io["environment"]): Filed {
  let document: unknown;
  try {
    document = Bun.YAML.parse(text);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return { ok: false, errors: [`the file is not YAML: ${why.replace(/^YAML Parse error: /, "")}`] };
  }
  if (!isMap(document))
    return { ok: false, errors: ["one YAML document with apiVersion, kind and spec is needed"] };
  const reader = new ConfigReader(environment);
  const { errors } = reader;
  const { apiVersion, kind, spec = {}, metadata: _name, ...rest } = document;
  if (apiVersion !== "svc/v1") errors.push("apiVersion: must be svc/v1");
  const found = configKinds.find((one) => one === kind);
  if (!found) errors.push(`kind: must be one of ${configKinds.join(", ")}`);
  for (const key of Object.keys(rest))
    errors.push(`${key}: unknown key${suggestion(key, ["apiVersion", "kind", "spec", "metadata"])}`);
  if (isMap(spec)) reader.readSpec(spec);
  else errors.push("spec: must be a map");
  const organizations = organizationsOf(isMap(spec) ? spec.platform : undefined, String(kind), errors);
  const { values } = reader;
  if (found === "Cluster" && values.SVC_DATABASE_URL === undefined)
    errors.push("spec.storage.url: a Cluster needs PostgreSQL");
  if (found === "Cluster" && values.NATS_URL === undefined)
    errors.push("spec.nats.url: a Cluster needs NATS");
  if (values.SVC_DATABASE_URL !== undefined && values.SVC_DB !== undefined)
    errors.push("spec.storage.path and spec.storage.url: choose one");
  const parsed = parseSettings(argv, values);
  if (!parsed.ok) errors.push(...parsed.errors);
  if (errors.length > 0 || !parsed.ok || !found) return { ok: false, errors };
  const ours = new Set(Object.values(settings).map((row: { env?: string }) => row.env));
  const ignored = Object.keys(environment)
    .filter((name) => ours.has(name) && environment[name] && !reader.used.has(name))
    .map((name) => `${name} is ignored: the file says the settings`);
  return {
    ok: true,
    filed: { kind: found, config: parsed.config, organizations, notices: [...reader.notices, ...ignored] },
  };
}

/** The text of a config file; throws a usage error where it cannot be read. */
export function configText(name: string, io: Pick<Io, "folder">): string {
  const file = resolve(io.folder, name);
  if (!existsSync(file)) throw usage(`${file} not found: svc config init writes one`);
  if (statSync(file).size > configFileBytesMax)
    throw usage(`${file} is larger than ${configFileBytesMax} bytes`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(readFileSync(file));
  } catch {
    throw usage(`${file} is not UTF-8 text`);
  }
}

/** `svc validate -f FILE` */
export function addValidate(program: Command, io: Io): void {
  program
    .command("validate [file]")
    .description("Checks a config file as serve -f would read it, and starts nothing.")
    .option("-f, --file <file>", "The file, as serve takes it.")
    .action(async (named: string | undefined, { file = named }: { file?: string }) => {
      if (file === undefined) throw usage("which file? svc validate svc.yaml; svc config init writes one");
      const outcome = readConfig(configText(file, io), [], io.environment);
      if (!outcome.ok) throw new CommandFailure(exitCodes.usage, outcome.errors.join("\n"));
      for (const notice of outcome.filed.notices) io.note(notice);
      await io.out(`${file}: a valid ${outcome.filed.kind}\n`);
    });
}

const template = (kind: string, isProduction: boolean): string => {
  const needsCluster = kind === "Cluster" || isProduction;
  const lines = [
    "apiVersion: svc/v1",
    `kind: ${kind}`,
    "spec:",
    "  port: 9123",
    ...(isProduction ? ["  host: 0.0.0.0"] : []),
    "  storage:",
    ...(needsCluster
      ? ["    driver: postgres", `    url: \${DATABASE_URL}`, "    pool:", "      maxConns: 25"]
      : ["    driver: libsql", "    path: .svc/svc.db"]),
    ...(kind === "Cluster"
      ? [
          "  nats:",
          `    url: \${NATS_SERVER:-nats://127.0.0.1:4222}`,
          "  cluster:",
          `    nodeId: \${HOSTNAME:-node-1}`,
        ]
      : []),
    "  auth:",
    ...(isProduction
      ? ["    devMode: false", `    masterKey: \${MASTER_KEY}`]
      : [`    devMode: ${kind === "Server"}`]),
    "  observability:",
    "    metrics:",
    `      enabled: ${isProduction}`,
    "  engine:",
    "    pushTimeout: 30s",
    ...(kind === "Platform"
      ? [
          "  platform:",
          "    organizations:",
          "      - name: Acme",
          "        projects:",
          "          - name: Shop",
          "            environments:",
          "              - name: production",
          "              - name: staging",
        ]
      : []),
  ];
  return `${lines.join("\n")}\n`;
};

/** `svc config init` */
export function addConfigFiles(group: Command, io: Io): void {
  group
    .command("init")
    .description("Writes a config file for serve -f.")
    .option("--kind <kind>", `One of ${configKinds.join(", ")}.`, "Server")
    .option("--prod", "For production: PostgreSQL, a master key, metrics.")
    .option("--to <file>", "The file; - for standard output.", "svc.yaml")
    .action(async ({ kind, prod = false, to }: { kind: string; prod?: boolean; to: string }) => {
      const named = configKinds.find((one) => one.toLowerCase() === kind.toLowerCase());
      if (!named) throw usage(`--kind: must be one of ${configKinds.join(", ")}, not ${kind}`);
      const text = template(named, prod);
      if (to === "-") return io.out(text);
      const file = resolve(io.folder, to);
      try {
        writeFileSync(file, text, { flag: "wx" });
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        throw usage(code === "EEXIST" ? `${file} exists` : `${file} cannot be written: ${code}`);
      }
      io.note(`${file} is written: svc serve -f ${to}`);
    });
}
