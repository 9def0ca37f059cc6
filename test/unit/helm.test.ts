import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import packageFile from "../../package.json" with { type: "json" };
import { operations } from "../../src/cli/operations.ts";
import { parseSettings, settings } from "../../src/settings/settings.ts";
import { buildHelm, type Helm } from "../support/helm.ts";
import { releases } from "../support/helm-releases.ts";
import { removeFolder } from "../support/process.ts";

const root = resolve(import.meta.dir, "../..");
const read = (path: string) => readFileSync(join(root, path), "utf8");

interface Variable {
  name: string;
  valueFrom: { secretKeyRef?: { name: string; key: string }; fieldRef?: { fieldPath: string } };
}

interface Port {
  name: string;
  port: number;
  targetPort: string;
}

/** Any document of Kubernetes; a test names what it wants of its kind. */
interface Document {
  apiVersion: string;
  kind: string;
  metadata: { name: string; labels: Record<string, string>; annotations?: Record<string, string> };
  data?: Record<string, string>;
  // biome-ignore lint/suspicious/noExplicitAny: tests state the shape they expect
  spec: any;
}

/** What a container gets for a variable that is no plain text. */
const samples: Record<string, string> = {
  "metadata.name": "svc-0",
  "master-key": "a".repeat(64),
  master: "a".repeat(64),
  "bootstrap-admin-key": `ifkey_${"b".repeat(36)}`,
  "database-url": "postgres://svc:secret@db:5432/svc",
  "nats-url": "nats://nats-1:4222,nats://nats-2:4222",
  jwt: "j".repeat(64),
};

/** Where the types of a kind's documents stand. */
const typesOf: Record<string, { file: string; name: string }> = Object.fromEntries(
  [
    ["StatefulSet", "kubernetes-models/apps/v1/StatefulSet"],
    ["Service", "kubernetes-models/v1/Service"],
    ["ServiceAccount", "kubernetes-models/v1/ServiceAccount"],
    ["ConfigMap", "kubernetes-models/v1/ConfigMap"],
    ["PodDisruptionBudget", "kubernetes-models/policy/v1/PodDisruptionBudget"],
    ["Ingress", "kubernetes-models/networking.k8s.io/v1/Ingress"],
    ["ServiceMonitor", "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor"],
    ["PrometheusRule", "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule"],
  ].map(([kind, file]) => [kind!, { file: file!, name: `I${kind}` }]),
);

describe("the Helm chart", () => {
  let helm: Helm;
  const documents: Record<string, Document[]> = {};
  beforeAll(async () => {
    helm = await buildHelm();
    const rendered = await helm.render(Object.values(releases));
    for (const [at, name] of Object.keys(releases).entries()) {
      const { documents: files, error } = rendered[at]!;
      expect([name, error]).toEqual([name, undefined]);
      documents[name] = Object.entries(files!)
        .filter(([path]) => path.endsWith(".yaml"))
        .flatMap(([, text]) => text.split(/^---$/m))
        .flatMap((text) => (Bun.YAML.parse(text) as Document | null) ?? []);
    }
  }, 180_000);
  afterAll(() => helm.stop());

  const refusalOf = async (values: object) => {
    const [{ error, documents: files } = {}] = await helm.render([
      { name: "svc", namespace: "default", values },
    ]);
    return error ?? `was rendered: ${Object.keys(files!)}`;
  };
  const kinds = (release: string) => documents[release]!.map(({ kind }) => kind).sort();
  const all = (release: string, kind: string) => documents[release]!.filter((one) => one.kind === kind);
  const only = (release: string, kind: string) => {
    expect(all(release, kind)).toHaveLength(1);
    return all(release, kind)[0]!;
  };
  const podOf = (release: string) => only(release, "StatefulSet").spec.template.spec;
  const containerOf = (release: string) => podOf(release).containers[0];
  const settingsOf = (release: string): Record<string, string> =>
    all(release, "ConfigMap").find(({ metadata }) => metadata.name.endsWith("-settings"))!.data!;

  test("makes what each kind of installation needs, and no more", () => {
    const least = ["ConfigMap", "Service", "Service", "ServiceAccount", "StatefulSet"];
    for (const release of ["as it comes", "one node", "no metrics"]) expect(kinds(release)).toEqual(least);
    const most = [
      "ConfigMap",
      "Ingress",
      "PodDisruptionBudget",
      "PrometheusRule",
      "ServiceMonitor",
      ...least,
    ].sort();
    for (const release of ["several nodes", "every value"]) expect(kinds(release)).toEqual(most);
    expect(only("one node", "StatefulSet").spec.replicas).toBe(1);
    expect(only("several nodes", "StatefulSet").spec.replicas).toBe(3);
  });

  test("its documents are of the types of Kubernetes and of the Prometheus operator", async () => {
    const folder = await mkdtemp(join(tmpdir(), "svc-helm-types-"));
    const list = Object.values(documents).flat();
    const imports = Object.values(typesOf).map(
      ({ file, name }) => `import type { ${name} } from ${JSON.stringify(join(root, "node_modules", file))};`,
    );
    // The last one is wrong: a check that finds nothing in it would find nothing at all.
    const wrong = { apiVersion: "v1", kind: "Service", metadata: { name: "x" }, spec: { prots: [] } };
    const lines = [...list, wrong].map(
      (one, at) => `export const d${at}: ${typesOf[one.kind]!.name} = ${JSON.stringify(one)};`,
    );
    await Bun.write(join(folder, "documents.ts"), [...imports, ...lines, ""].join("\n"));
    const options = [
      "--noEmit",
      "--strict",
      "--skipLibCheck",
      "--module",
      "esnext",
      "--moduleResolution",
      "bundler",
    ];
    const checked = Bun.spawn(
      [join(root, "node_modules/.bin/tsc"), ...options, "--types", "", "documents.ts"],
      {
        cwd: folder,
      },
    );
    const said = (await new Response(checked.stdout).text()).trim().split("\n");
    expect(said.filter((line) => /^\S/.test(line))).toEqual([
      expect.stringMatching(
        new RegExp(`^documents.ts\\(${imports.length + lines.length},.*prots.*does not exist`),
      ),
    ]);
    await removeFolder(folder);
  }, 120_000);

  test("names and labels are the release's, and selectors find its pods alone", () => {
    for (const [name, list] of Object.entries(documents)) {
      const release = releases[name]!.name;
      const selector = { "app.kubernetes.io/name": "svc", "app.kubernetes.io/instance": release };
      for (const { kind, metadata } of list) {
        expect(metadata.name).toStartWith(release === "svc" ? "svc" : `${release}-svc`);
        expect(metadata.name).toMatch(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])$/);
        expect(metadata.labels).toMatchObject({
          ...selector,
          "app.kubernetes.io/version": packageFile.version,
        });
        expect([
          kind,
          list.filter((one) => one.kind === kind && one.metadata.name === metadata.name),
        ]).toEqual([kind, [expect.anything()]]);
      }
      const { spec } = only(name, "StatefulSet");
      expect(spec.selector.matchLabels).toEqual(selector);
      expect(spec.template.metadata.labels).toMatchObject(selector);
      for (const service of all(name, "Service")) expect(service.spec.selector).toEqual(selector);
      for (const budget of all(name, "PodDisruptionBudget"))
        expect(budget.spec.selector.matchLabels).toEqual(selector);
      expect(all(name, "Service").map(({ metadata }) => metadata.name)).toContain(spec.serviceName);
      expect(spec.template.spec.serviceAccountName).toBe(only(name, "ServiceAccount").metadata.name);
    }
  });

  test.each(Object.keys(releases))(
    "%s: a node starts with its settings, and no secret stands among them",
    (name) => {
      const variables = containerOf(name).env as Variable[];
      const values = {
        ...settingsOf(name),
        ...Object.fromEntries(
          variables.map(({ name: variable, valueFrom: { secretKeyRef, fieldRef } }) => [
            variable,
            samples[secretKeyRef?.key ?? fieldRef!.fieldPath]!,
          ]),
        ),
      };
      expect(parseSettings([], values)).toMatchObject({ ok: true });
      const mounts: string[] = containerOf(name).volumeMounts.map(
        (one: { mountPath: string }) => one.mountPath,
      );
      for (const [variable, path] of Object.entries(values))
        if (variable.endsWith("_FILE")) expect(mounts).toContain(dirname(path));
      expect(containerOf(name).envFrom).toEqual([
        { configMapRef: { name: all(name, "ConfigMap").find(({ data }) => data?.SVC_HOST)!.metadata.name } },
      ]);
      const secret = Object.values(settings).flatMap((row: { env?: string; secret?: boolean }) =>
        row.secret ? [row.env] : [],
      );
      expect(Object.keys(settingsOf(name)).filter((one) => secret.includes(one))).toEqual([]);
      const wanted = releases[name]!.values as { secret?: { name?: string } } | undefined;
      const secretName = wanted?.secret?.name ?? (releases[name]!.name === "svc" ? "svc" : "shop-svc");
      for (const { name: variable, valueFrom } of variables)
        if (valueFrom.secretKeyRef && variable !== "SVC_JWT_SECRET")
          expect(valueFrom.secretKeyRef.name).toBe(secretName);
      const text = JSON.stringify(documents[name]);
      expect(text).not.toContain('"kind":"Secret"');
      for (const image of [containerOf(name).image])
        expect(image).toEndWith(name === "every value" ? ":1.2.3" : `:${packageFile.version}`);
    },
  );

  test("ports are those that a node listens on, and probes ask what needs no credential", () => {
    for (const name of Object.keys(releases)) {
      const values = settingsOf(name);
      const container = containerOf(name);
      const ports = Object.fromEntries(
        container.ports.map((one: { name: string; containerPort: number }) => [
          one.name,
          `${one.containerPort}`,
        ]),
      );
      const metrics = name === "no metrics" ? {} : { metrics: values.SVC_METRICS_PORT! };
      expect(ports).toEqual({ http: values.SVC_PORT, grpc: values.SVC_GRPC_PORT, ...metrics });
      for (const { spec } of all(name, "Service"))
        for (const { targetPort } of spec.ports as Port[]) expect(Object.keys(ports)).toContain(targetPort);
      const paths = {
        startupProbe: "/health",
        readinessProbe: "/ready",
        livenessProbe: "/api/v1/capabilities",
      };
      const scheme = name === "every value" ? "HTTPS" : "HTTP";
      for (const [probe, path] of Object.entries(paths)) {
        expect(container[probe].httpGet).toEqual({ path, port: "http", scheme });
        const asked = operations.find(({ paths: known, method }) => method === "GET" && known.includes(path));
        expect([path, asked?.action]).toEqual([path, "public"]);
      }
      expect(podOf(name).terminationGracePeriodSeconds * 1000).toBeGreaterThanOrEqual(
        Number(values.SVC_DRAIN_NOTICE_MS) + Number(values.SVC_DRAIN_MS) + 10_000,
      );
    }
    const { spec } = only("every value", "Ingress");
    const { backend } = spec.rules[0].http.paths[0];
    const service = all("every value", "Service").find(
      ({ metadata }) => metadata.name === backend.service.name,
    )!;
    expect((service.spec.ports as Port[]).map(({ name }) => name)).toContain(backend.service.port.name);
    expect(spec.tls).toEqual([{ hosts: ["svc.example.com"], secretName: "svc-tls" }]);
    const monitor = only("several nodes", "ServiceMonitor").spec;
    const found = all("several nodes", "Service").filter(({ metadata }) =>
      Object.entries(monitor.selector.matchLabels).every(
        ([label, value]) => metadata.labels[label] === value,
      ),
    );
    expect(found.map(({ spec: own }) => (own.ports as Port[]).map(({ name }) => name))).toEqual([
      expect.arrayContaining([monitor.endpoints[0].port]),
    ]);
  });

  test("a node is not root, and writes to its volumes alone", () => {
    const image = read("cluster/Containerfile");
    const uid = Number(/^USER (\d+):\1$/m.exec(image)?.[1]);
    expect(image).toContain(`--uid ${uid} --gid ${uid} `);
    for (const name of Object.keys(releases)) {
      const pod = podOf(name);
      const container = containerOf(name);
      expect(pod.securityContext).toMatchObject({
        ...{ runAsNonRoot: true, runAsUser: uid, runAsGroup: uid, fsGroup: uid },
        seccompProfile: { type: "RuntimeDefault" },
      });
      expect(container.securityContext).toEqual({
        ...{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } },
      });
      expect(container.resources).toMatchObject({ requests: { memory: "512Mi" }, limits: { memory: "2Gi" } });
      expect(pod.automountServiceAccountToken).toBe(false);
      const mounts = container.volumeMounts as { name: string; mountPath: string; readOnly?: boolean }[];
      const places = mounts.filter(({ readOnly }) => !readOnly).map(({ mountPath }) => mountPath);
      expect(places).toEqual(["/var/lib/svc", "/tmp"]);
      const kept = [
        ...pod.volumes.map((one: { name: string }) => one.name),
        ...only(name, "StatefulSet").spec.volumeClaimTemplates.map((one: Document) => one.metadata.name),
      ];
      expect(kept.sort()).toEqual(mounts.map((one) => one.name).sort());
      const { SVC_AUDIT_SPOOL, SVC_BOOTSTRAP_KEY_FILE, SVC_DB } = settingsOf(name);
      expect(SVC_DB === undefined).toBe(only(name, "StatefulSet").spec.replicas > 1);
      for (const path of [SVC_AUDIT_SPOOL, SVC_BOOTSTRAP_KEY_FILE, SVC_DB ?? "/var/lib/svc/"])
        expect(path).toStartWith("/var/lib/svc/");
    }
  });

  test("variables that Kubernetes makes of a service named svc would stop a node: there are none", () => {
    expect(parseSettings([], { SVC_SERVICE_HOST: "10.0.0.1" }).ok).toBe(false);
    expect(podOf("as it comes").enableServiceLinks).toBe(false);
  });

  test("other settings are another pod, and nothing else is", async () => {
    const sumOf = async (values: object) => {
      const [{ documents: files } = {}] = await helm.render([{ name: "svc", namespace: "default", values }]);
      return /checksum\/settings: (\w+)/.exec(files!["templates/stateful-set.yaml"]!)?.[1];
    };
    const first = await sumOf({});
    expect(await sumOf({ resources: { limits: { memory: "4Gi" } } })).toBe(first!);
    expect(await sumOf({ settings: { SVC_LEASE_MS: "30000" } })).not.toBe(first!);
  });

  test("alerts and dashboard are those of cluster/observability", () => {
    expect(only("several nodes", "PrometheusRule").spec).toEqual(
      Bun.YAML.parse(read("cluster/observability/alerts.yaml")),
    );
    const dashboard = all("several nodes", "ConfigMap").find(({ metadata }) =>
      metadata.name.endsWith("-dashboard"),
    )!;
    expect(dashboard.metadata.labels.grafana_dashboard).toBe("1");
    expect(JSON.parse(dashboard.data!["svc.json"]!)).toEqual(
      JSON.parse(read("cluster/observability/dashboard.json")),
    );
    expect(only("several nodes", "ServiceMonitor").spec.jobLabel).toBe("app.kubernetes.io/name");
  });

  test.each([
    [{ nodess: 2 }, "- (root): Additional property nodess is not allowed"],
    [{ metrics: { servicemonitor: {} } }, "- metrics: Additional property servicemonitor is not allowed"],
    [{ nodes: "3" }, "- nodes: Invalid type. Expected: integer, given: string"],
    [{ database: "mysql" }, '- database: database must be one of the following: "libsql", "postgres"'],
    [{ settings: { SVC_LEASE_MS: 30_000 } }, "- settings.SVC_LEASE_MS: Invalid type."],
    [{ settings: { SVC_MASTER_KEY: "a" } }, "SVC_MASTER_KEY"],
    [{ settings: { SVC_PORT: "80" } }, "SVC_PORT"],
    [{ secretSettings: { SVC_LEASE_MS: { name: "a", key: "b" } } }, "SVC_LEASE_MS"],
    [{ nodes: 2 }, "nodes: more than one needs `database: postgres`; libSQL is a file of one node"],
    [{ nats: true }, "nats: is for several nodes"],
    [{ tls: { enabled: true } }, "tls.secretName: names the secret"],
    [{ ingress: { enabled: true, host: "" } }, "ingress.host: the name that callers use"],
    [
      { metrics: { enabled: false, rules: { enabled: true } } },
      "metrics.rules.enabled: needs `metrics.enabled: true`",
    ],
    [
      { settings: { SVC_JWT_SECRET: "a" }, secretSettings: { SVC_JWT_SECRET: { name: "a", key: "b" } } },
      "SVC_JWT_SECRET",
    ],
  ])("refuses %j", async (values, line) => {
    expect(await refusalOf(values)).toContain(line);
  });

  test("has a place for each setting that is secret", () => {
    const schema = JSON.parse(read("cluster/helm/values.schema.json")).properties;
    const secret = Object.values(settings).flatMap((row: { env?: string; secret?: boolean }) =>
      row.secret ? [row.env!] : [],
    );
    const given = (containerOf("several nodes").env as Variable[]).map(({ name }) => name);
    expect([...schema.secretSettings.propertyNames.enum, ...given].sort()).toEqual(
      [...secret, "SVC_NODE_ID"].sort(),
    );
  });

  test("has the version of the package, every value described by its schema, and a secret that the runbook makes", () => {
    const about = Bun.YAML.parse(read("cluster/helm/Chart.yaml")) as Record<string, string>;
    expect([about.version, about.appVersion]).toEqual([packageFile.version, packageFile.version]);
    const schema = JSON.parse(read("cluster/helm/values.schema.json"));
    const values = Bun.YAML.parse(read("cluster/helm/values.yaml")) as Record<string, unknown>;
    expect(Object.keys(schema.properties).sort()).toEqual([...Object.keys(values), "global"].sort());
    const made = [...read("cluster/README.md").matchAll(/--from-literal=([\w-]+)=/g)].map(([, key]) => key!);
    const asked = (containerOf("several nodes").env as Variable[]).flatMap(
      ({ valueFrom }) => valueFrom.secretKeyRef?.key ?? [],
    );
    expect(made.sort()).toEqual(asked.sort());
  });
});
