import { describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import packageFile from "../../package.json" with { type: "json" };
import { operations } from "../../src/cli/operations.ts";
import { parseSettings, settings } from "../../src/settings/settings.ts";

const root = resolve(import.meta.dir, "../..");
const folder = join(root, "cluster/kubernetes");
const read = (path: string) => readFileSync(join(folder, path), "utf8");

interface Variable {
  name: string;
  valueFrom: { secretKeyRef?: { name: string; key: string }; fieldRef?: { fieldPath: string } };
}

interface Probe {
  httpGet: { path: string; port: string };
}

interface Container {
  name: string;
  image: string;
  env: Variable[];
  ports: { name: string; containerPort: number }[];
  volumeMounts: { name: string; mountPath: string }[];
  securityContext: Record<string, unknown>;
  resources: unknown;
  startupProbe: Probe;
  readinessProbe: Probe;
  livenessProbe: Probe;
}

interface StatefulSet {
  metadata: { name: string };
  spec: {
    serviceName: string;
    template: {
      spec: {
        enableServiceLinks: boolean;
        terminationGracePeriodSeconds: number;
        securityContext: Record<string, unknown>;
        containers: [Container];
        volumes: { name: string }[];
      };
    };
    volumeClaimTemplates: { metadata: { name: string } }[];
  };
}

interface Kustomization {
  resources?: string[];
  patches?: { path: string }[];
  images?: { name: string; newTag: string }[];
  configMapGenerator?: { name: string; envs: string[] }[];
}

const parse = <Shape>(path: string) => Bun.YAML.parse(read(path)) as Shape;
const set = parse<StatefulSet>("base/stateful-set.yaml");
const pod = set.spec.template.spec;
const [container] = pod.containers;

const settingsOf = (kustomization: string): Record<string, string> =>
  Object.fromEntries(
    (parse<Kustomization>(kustomization).configMapGenerator ?? [])
      .flatMap(({ envs }) => envs.map((name) => read(join(dirname(kustomization), name))))
      .join("\n")
      .split("\n")
      .filter((line) => line !== "" && !line.startsWith("#"))
      .map((line) => line.split(/=(.*)/).slice(0, 2) as [string, string]),
  );

/** What a container gets for a variable that is no plain text. */
const samples: Record<string, string> = {
  "metadata.name": "svc-0",
  "master-key": "a".repeat(64),
  "bootstrap-admin-key": `ifkey_${"b".repeat(36)}`,
  "database-url": "postgres://svc:secret@db:5432/svc",
  "nats-url": "nats://nats-1:4222,nats://nats-2:4222",
};

const sampleOf = ({ valueFrom: { secretKeyRef, fieldRef } }: Variable): string =>
  samples[secretKeyRef?.key ?? fieldRef!.fieldPath]!;

const overlays = [...new Bun.Glob("overlays/*/kustomization.yaml").scanSync({ cwd: folder })].sort();

function environmentOf(overlay: string): { variables: Variable[]; values: Record<string, string> } {
  const patches = (parse<Kustomization>(overlay).patches ?? []).map(({ path }) =>
    parse<StatefulSet>(join(dirname(overlay), path)),
  );
  const variables = [
    ...container.env,
    ...patches.flatMap((patch) => patch.spec.template.spec.containers[0].env),
  ];
  const values = {
    ...settingsOf("base/kustomization.yaml"),
    ...settingsOf(overlay),
    ...Object.fromEntries(variables.map((one) => [one.name, sampleOf(one)])),
  };
  return { variables, values };
}

describe("the manifests for Kubernetes", () => {
  test("name files that are there, and leave none out", () => {
    const named = new Set<string>();
    for (const path of new Bun.Glob("**/kustomization.yaml").scanSync({ cwd: folder })) {
      named.add(path);
      const { resources = [], patches = [], configMapGenerator = [] } = parse<Kustomization>(path);
      const names = [
        ...resources,
        ...patches.map((one) => one.path),
        ...configMapGenerator.flatMap((one) => one.envs),
      ];
      for (const name of names) named.add(join(dirname(path), name));
    }
    named.delete("base");
    const files = [...new Bun.Glob("**/*").scanSync({ cwd: folder })];
    expect([...named].sort()).toEqual(files.sort());
    for (const path of files.filter((name) => name.endsWith(".yaml")))
      for (const part of read(path).split(/^---$/m))
        expect(Bun.YAML.parse(part)).toMatchObject({
          apiVersion: expect.any(String),
          kind: expect.any(String),
        });
  });

  test.each(overlays)("%s: a node starts with its settings", (overlay) => {
    const { variables, values } = environmentOf(overlay);
    const known = Object.values(settings).map((row: { env?: string }) => row.env);
    expect(Object.keys(values).filter((name) => !known.includes(name))).toEqual([]);
    expect(parseSettings([], values)).toMatchObject({ ok: true });
    const secret = Object.values(settings).flatMap((row: { env?: string; secret?: boolean }) =>
      row.secret ? [row.env] : [],
    );
    const plain = Object.keys(values).filter((name) => !variables.some((one) => one.name === name));
    expect(plain.filter((name) => secret.includes(name))).toEqual([]);
    const { images } = parse<Kustomization>(overlay);
    expect(images).toEqual([expect.objectContaining({ name: container.image, newTag: packageFile.version })]);
  });

  test("a secret that the runbook makes has every key that a node asks for", () => {
    const made = [
      ...readFileSync(join(root, "cluster/README.md"), "utf8").matchAll(/--from-literal=([\w-]+)=/g),
    ];
    const asked = overlays.flatMap((overlay) =>
      environmentOf(overlay).variables.flatMap(({ valueFrom: { secretKeyRef } }) =>
        secretKeyRef ? [secretKeyRef.key] : [],
      ),
    );
    expect([...new Set(asked)].sort()).toEqual(made.map(([, key]) => key!).sort());
  });

  test("variables that Kubernetes makes of a service named svc would stop a node: there are none", () => {
    expect(parseSettings([], { SVC_SERVICE_HOST: "10.0.0.1" }).ok).toBe(false);
    expect(pod.enableServiceLinks).toBe(false);
  });

  test("probes ask operations that need no credential, at ports that the node listens on", () => {
    const values = settingsOf("base/kustomization.yaml");
    const ports = Object.fromEntries(container.ports.map((one) => [one.name, `${one.containerPort}`]));
    const listened = {
      http: values.SVC_PORT!,
      grpc: values.SVC_GRPC_PORT!,
      metrics: values.SVC_METRICS_PORT!,
    };
    expect(ports).toEqual(listened);
    for (const { httpGet } of [container.startupProbe, container.readinessProbe, container.livenessProbe]) {
      const asked = operations.find(({ paths, method }) => method === "GET" && paths.includes(httpGet.path));
      expect({ ...httpGet, action: asked?.action }).toEqual({ ...httpGet, port: "http", action: "public" });
    }
    expect(pod.terminationGracePeriodSeconds * 1000).toBeGreaterThanOrEqual(
      Number(values.SVC_DRAIN_NOTICE_MS) + Number(values.SVC_DRAIN_MS) + 10_000,
    );
  });

  test("a node is not root, and writes to its volumes alone", () => {
    const image = readFileSync(join(root, "cluster/Containerfile"), "utf8");
    const uid = Number(/^USER (\d+):\1$/m.exec(image)?.[1]);
    expect(image).toContain(`--uid ${uid} --gid ${uid} `);
    expect(pod.securityContext).toMatchObject({
      runAsNonRoot: true,
      runAsUser: uid,
      runAsGroup: uid,
      fsGroup: uid,
    });
    expect(container.securityContext).toEqual({
      ...{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } },
    });
    const places = container.volumeMounts.map(({ mountPath }) => mountPath);
    expect(places).toEqual(["/var/lib/svc", "/tmp"]);
    const kept = [
      ...pod.volumes.map((one) => one.name),
      ...set.spec.volumeClaimTemplates.map((one) => one.metadata.name),
    ];
    expect(kept.sort()).toEqual(container.volumeMounts.map(({ name }) => name).sort());
    const { SVC_AUDIT_SPOOL, SVC_BOOTSTRAP_KEY_FILE } = settingsOf("base/kustomization.yaml");
    const { SVC_DB } = settingsOf("overlays/one-node/kustomization.yaml");
    for (const path of [SVC_AUDIT_SPOOL, SVC_BOOTSTRAP_KEY_FILE, SVC_DB])
      expect(path).toStartWith(`${places[0]}/`);
  });
});

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
