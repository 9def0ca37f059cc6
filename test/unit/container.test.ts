import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import packageFile from "../../package.json" with { type: "json" };
import { grpcPortDefault } from "../../src/settings/listen.ts";
import { settings } from "../../src/settings/settings.ts";

const root = resolve(import.meta.dir, "../..");

/** By the reference of Dockerfile. */
const instructions =
  /^(FROM|RUN|CMD|LABEL|EXPOSE|ENV|ADD|COPY|ENTRYPOINT|VOLUME|USER|WORKDIR|ARG|STOPSIGNAL|HEALTHCHECK|SHELL) \S/;

test("the container file has known instructions, and leaves out nothing that its build reads", () => {
  const lines = readFileSync(join(root, "cluster/Containerfile"), "utf8")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"));
  expect(lines.filter((line) => !instructions.test(line))).toEqual([]);
  expect(lines[0]).toBe(`FROM oven/bun:${packageFile.packageManager.replace("bun@", "")} AS build`);
  const scripts = lines
    .join("\n")
    .match(/bun run [\w:]+/g)!
    .map((text) => text.slice("bun run ".length));
  expect(Object.keys(packageFile.scripts)).toEqual(expect.arrayContaining(scripts));
  const ignored = readFileSync(join(root, ".dockerignore"), "utf8").trim().split("\n");
  const needed = [
    "package.json",
    "bun.lock",
    "bunfig.toml",
    ...Object.values(packageFile.patchedDependencies),
    "src",
    "proto",
  ];
  expect(
    needed.filter((path) => ignored.includes(path.split("/")[0]!) || !existsSync(join(root, path))),
  ).toEqual([]);
});

interface Stage {
  from: string;
  name: string | undefined;
  lines: { word: string; rest: string }[];
}

/** The stages of a container file, whose lines nothing continues. */
function stagesOf(text: string): Stage[] {
  const stages: Stage[] = [];
  for (const line of text.split("\n").filter((one) => one !== "" && !one.startsWith("#"))) {
    const [, word = "", rest = ""] = /^(\w+) (.+)$/.exec(line) ?? [];
    const [, from, name] = (word === "FROM" && /^(\S+)(?: AS (\S+))?$/.exec(rest)) || [];
    if (from === undefined) stages.at(-1)!.lines.push({ word, rest });
    else stages.push({ from, name, lines: [] });
  }
  return stages;
}

test("the container file keeps the rules of good images", () => {
  const text = readFileSync(join(root, "cluster/Containerfile"), "utf8");
  expect(text).not.toMatch(/\\$/m);
  const stages = stagesOf(text);
  const last = stages.at(-1)!;
  const restsOf = (word: string) => last.lines.filter((line) => line.word === word).map(({ rest }) => rest);
  // Images by their versions, from which the same image can be built again.
  for (const { from } of stages) expect(from).toMatch(/^[a-z][a-z0-9./-]*:(?!latest$)[\w.-]+$/);
  const named = stages.flatMap(({ name }) => name ?? []);
  for (const { rest } of stages.flatMap(({ lines }) => lines.filter(({ word }) => word === "COPY"))) {
    const [, stage] = /^--from=(\S+) /.exec(rest) ?? [];
    if (stage !== undefined) expect(named).toContain(stage);
  }
  // What the last stage copies is what the one before it has built.
  const built = stages[0]!.lines.map(({ rest }) => rest).join("\n");
  const folder = /build:binary (\/\S+)\/svc/.exec(built)![1]!;
  for (const rest of restsOf("COPY"))
    for (const source of rest.split(" ").slice(1, -1)) expect(source).toStartWith(`${folder}/`);
  expect(text).not.toMatch(/^ADD |\bsudo\b|\bcurl\b|\bapt-get\b|^RUN cd /m);
  for (const { lines } of stages)
    for (const { word, rest } of lines) {
      if (word === "WORKDIR") expect(rest).toStartWith("/");
      // A shell would be the process that gets the signals.
      if (word === "ENTRYPOINT" || word === "CMD") expect(JSON.parse(rest)).toEqual(expect.any(Array));
    }
  expect(restsOf("USER").at(-1)).toMatch(/^[1-9]\d*:[1-9]\d*$/);
  expect(restsOf("ENTRYPOINT")).toHaveLength(1);
  const variables = restsOf("ENV").flatMap((rest) => rest.split(" ").map((one) => one.split("=")[0]!));
  const known = Object.values(settings).map((row: { env?: string }) => row.env);
  expect(variables.filter((name) => !known.includes(name))).toEqual([]);
  const listened = [settings.port.fallback, grpcPortDefault].map(String);
  expect(restsOf("EXPOSE").join(" ").split(" ")).toEqual(listened);
});

/** Keys of a service by the Compose specification, as far as we use them. */
const serviceKeys = [
  ...["image", "command", "environment", "volumes", "ports", "depends_on", "healthcheck", "restart", "user"],
  ...["working_dir", "read_only", "tmpfs", "cap_drop", "security_opt", "init", "shm_size"],
  ...["stop_grace_period", "stop_signal"],
];
const healthKeys = ["test", "interval", "timeout", "retries", "start_period"];
const conditions = ["service_started", "service_healthy"];
const duration = /^(\d+m)?(\d+s)?$/;

interface ComposeService {
  image: string;
  environment?: Record<string, unknown>;
  ports?: string[];
  depends_on?: Record<string, { condition: string }>;
  healthcheck?: Record<string, unknown> & { test: string[] };
  restart: string;
  stop_grace_period?: string;
  read_only?: boolean;
}

test("compose.yaml is of the Compose specification, and each service can start", () => {
  const text = readFileSync(join(root, "cluster/compose.yaml"), "utf8");
  const file = Bun.YAML.parse(text) as Record<string, unknown> & { services: Record<string, ComposeService> };
  const { services } = file;
  expect(Object.keys(file).filter((key) => !/^(name|services|volumes|x-[\w-]+)$/.test(key))).toEqual([]);
  for (const [name, service] of Object.entries(services)) {
    const unknown = Object.keys(service).filter((key) => !serviceKeys.includes(key));
    expect([name, unknown]).toEqual([name, []]);
    expect(service.image).toMatch(/^[a-z][a-z0-9./-]*:(?!latest$)[\w.-]+$/);
    expect(service.restart).toBe("unless-stopped");
    for (const [other, { condition }] of Object.entries(service.depends_on ?? {})) {
      expect(conditions).toContain(condition);
      // Without a health check Compose would wait for it without an end.
      expect([other, services[other]?.healthcheck !== undefined || condition === "service_started"]).toEqual([
        other,
        true,
      ]);
    }
    const { healthcheck, stop_grace_period: grace } = service;
    if (healthcheck) {
      expect(Object.keys(healthcheck).filter((key) => !healthKeys.includes(key))).toEqual([]);
      expect(["CMD", "CMD-SHELL"]).toContain(healthcheck.test[0]!);
      for (const key of ["interval", "timeout", "start_period"])
        if (key in healthcheck) expect(healthcheck[key]).toMatch(duration);
    }
    if (grace !== undefined) expect(grace).toMatch(duration);
    // Nothing is offered to the network before somebody decides so.
    for (const port of service.ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:\d+:\d+$/);
    for (const value of Object.values(service.environment ?? {})) expect(typeof value).toBe("string");
  }
  // A secret that nobody gave stops `up` with a line that says where it goes.
  const asked = [...text.matchAll(/\$\{(\w+)([^}]*)\}/g)].map(([, name, rest]) => ({ name, rest }));
  expect(asked.filter(({ rest }) => rest !== ":?write it to cluster/.env")).toEqual([]);
  const told = [...text.matchAll(/^#\s+echo "(\w+)=/gm)].map(([, name]) => name!);
  expect([...new Set(asked.map(({ name }) => name!))].sort()).toEqual(told.sort());
  const node = services["node-1"]!;
  expect(node.read_only).toBe(true);
  const drainMs = Number(node.environment?.SVC_DRAIN_MS) + Number(node.environment?.SVC_DRAIN_NOTICE_MS);
  expect(Number(/^(\d+)s$/.exec(node.stop_grace_period ?? "")?.[1]) * 1_000).toBeGreaterThanOrEqual(
    drainMs + 10_000,
  );
});
