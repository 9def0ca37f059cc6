import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { findNatsServer, run } from "../../cluster/programs.ts";
import { settings } from "../../src/settings/settings.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";

const folder = resolve(import.meta.dir, "../../cluster");
const read = (name: string) => readFileSync(join(folder, name), "utf8");

/** `name = value` lines of postgres.conf. */
const postgresSettings = read("postgres.conf")
  .split("\n")
  .flatMap((line) => {
    const [, name, value] = /^(\w+) = (.+)$/.exec(line) ?? [];
    return name === undefined || value === undefined ? [] : [{ name, value: value.replaceAll("'", "") }];
  });

let postgres: PostgresServer;
beforeAll(async () => {
  postgres = await startPostgres({
    settings: Object.fromEntries(postgresSettings.map(({ name, value }) => [name, value])),
  });
});
afterAll(() => postgres.stop());

test("PostgreSQL starts with every line of postgres.conf, and each is meant", async () => {
  expect(postgresSettings.length).toBeGreaterThan(25);
  // Lines that state a default on purpose, because it must not be changed.
  const kept =
    /^(synchronous_commit|fsync|full_page_writes|wal_level|commit_delay|checkpoint_completion_target|log_checkpoints)$/;
  const sql = new Bun.SQL(postgres.url, { max: 1 });
  try {
    const rows: { name: string; setting: string; boot_val: string }[] = await sql.unsafe(
      "SELECT name, setting, boot_val FROM pg_settings",
    );
    const idle = postgresSettings.filter(({ name }) => {
      const row = rows.find((one) => one.name === name);
      return !row || (row.setting === row.boot_val && !kept.test(name));
    });
    expect(idle).toEqual([]);
    const connections = Number(rows.find(({ name }) => name === "max_connections")?.setting);
    // Four nodes during an upgrade, each with one for migrations.
    expect(connections).toBeGreaterThanOrEqual(4 * (settings.poolSize.fallback + 1));
  } finally {
    await sql.close();
  }
});

test("NATS takes nats.conf, alone and with what the command line adds", async () => {
  const conf = ["-t", "-c", join(folder, "nats.conf")];
  await run([findNatsServer(), ...conf]);
  const flags = ["--name", "n", "--store_dir", "/tmp/none", "--addr", "0.0.0.0", "--port", "1234"];
  const cluster = ["--cluster", "nats://0.0.0.0:6333", "--routes", "nats://127.0.0.1:6334"];
  await run([findNatsServer(), ...conf, ...flags, ...cluster]);
});

interface Compose {
  services: Record<
    string,
    { image: string; environment?: Record<string, string>; command?: string[]; volumes?: string[] }
  >;
  volumes: Record<string, null>;
}

test("compose.yaml: identical nodes but for their names, known settings, files that are there", () => {
  const { services, volumes } = Bun.YAML.parse(read("compose.yaml")) as Compose;
  const named = (prefix: string) => Object.keys(services).filter((name) => name.startsWith(prefix));
  expect(named("node-")).toEqual(["node-1", "node-2", "node-3"]);
  expect(named("nats-")).toEqual(["nats-1", "nats-2", "nats-3"]);

  const known = Object.values(settings).map((row: { env?: string }) => row.env);
  const environments = named("node-").map((name) => {
    const { SVC_NODE_ID, ...rest } = services[name]?.environment ?? {};
    expect(SVC_NODE_ID).toBe(name);
    return rest;
  });
  expect(new Set(environments.map((one) => JSON.stringify(one))).size).toBe(1);
  expect(Object.keys(environments[0] ?? {}).filter((name) => !known.includes(name))).toEqual([]);
  for (const name of named("nats-")) expect(services[name]?.command).toContain(name);

  const mounts = Object.values(services).flatMap((service) => service.volumes ?? []);
  for (const mount of mounts) {
    const [source = ""] = mount.split(":");
    if (source.startsWith(".")) expect(existsSync(join(folder, source))).toBe(true);
    else expect(Object.keys(volumes)).toContain(source);
  }
  const bun = JSON.parse(read("../package.json")).packageManager.replace("bun@", "");
  expect(services["node-1"]?.image).toBe(`oven/bun:${bun}`);
});

test("balancers and the unit name the nodes of up.ts, and let a drain end", () => {
  for (const name of ["nginx.conf", "haproxy.cfg"]) {
    for (const port of [9123, 9124, 9125]) expect(read(name)).toContain(`127.0.0.1:${port}`);
  }
  expect(read("nginx.conf")).not.toMatch(/^\s*proxy_next_upstream[^#\n]*(non_idempotent|http_5)/m);
  expect(read("haproxy.cfg")).toMatch(/^\s*retry-on conn-failure$/m);
  const unit = read("svc.service");
  const drainMs = Number(/SVC_DRAIN_MS=(\d+)/.exec(unit)?.[1]);
  expect(Number(/TimeoutStopSec=(\d+)/.exec(unit)?.[1]) * 1_000).toBeGreaterThanOrEqual(drainMs + 10_000);
});

test("the runbook names metrics that there are, and files", () => {
  const runbook = read("README.md");
  const source = [...new Bun.Glob("src/**/*.ts").scanSync(join(folder, ".."))].map((path) =>
    read(`../${path}`),
  );
  const names = [...runbook.matchAll(/`(svc_[a-z]+_[a-z_]+)`/g)].map(([, name]) => name as string);
  expect(names.length).toBeGreaterThan(8);
  expect(names.filter((name) => !source.some((text) => text.includes(`"${name}"`)))).toEqual([]);
  const files = [...runbook.matchAll(/`([\w-]+\.(?:ts|conf|cfg|yaml|service))`/g)].map(
    ([, name]) => name as string,
  );
  expect(files.filter((name) => !existsSync(join(folder, name)))).toEqual([]);
});

test("the chart refuses each secret among its settings, and knows no setting that is not", () => {
  const { properties } = JSON.parse(read("helm/values.schema.json"));
  const refused: string[] = properties.settings.propertyNames.not.enum;
  const rows: { env?: string; secret?: boolean }[] = Object.values(settings);
  expect(rows.flatMap(({ env, secret }) => (secret && !refused.includes(env!) ? [env] : []))).toEqual([]);
  expect(refused.filter((name) => !rows.some(({ env }) => env === name))).toEqual([]);
});
