import type { Release } from "./helm.ts";

/** Every value of the chart, another than as it comes. */
const everything = {
  nodes: 3,
  database: "postgres",
  nats: true,
  image: { tag: "1.2.3", pullPolicy: "Always" },
  imagePullSecrets: [{ name: "registry" }],
  secret: { name: "svc-keys", keys: { masterKey: "master" } },
  settings: {
    SVC_LEASE_MS: "30000",
    LOG_LEVEL: "debug",
    NATS_TLS_CA_FILE: "/etc/svc/nats/ca.crt",
    SVC_AUDIT_KV: true,
  },
  secretSettings: { SVC_JWT_SECRET: { name: "svc-jwt", key: "jwt" } },
  secretFiles: [{ name: "nats-ca", path: "/etc/svc/nats" }],
  drain: { noticeMs: 1_500, ms: 600_000 },
  service: { type: "LoadBalancer", annotations: { "example.com/a": "b" }, port: 443, grpcPort: 8443 },
  ingress: { enabled: true, host: "svc.example.com", tlsSecret: "svc-tls", className: "nginx" },
  tls: { enabled: true, secretName: "svc-own-tls" },
  metrics: {
    serviceMonitor: { enabled: true, interval: "30s", labels: { release: "prometheus" } },
    rules: { enabled: true },
    dashboard: { enabled: true },
  },
  persistence: { size: "1.5Ti", storageClass: "fast" },
  podDisruptionBudget: { maxUnavailable: "50%" },
  serviceAccount: { annotations: { "eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/svc" } },
  podAnnotations: { "example.com/team": "shop" },
  podLabels: { team: "shop" },
  nodeSelector: { disk: "ssd" },
  tolerations: [{ key: "svc", operator: "Exists" }],
  affinity: {
    podAntiAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: [
        { topologyKey: "kubernetes.io/hostname", labelSelector: { matchLabels: { team: "shop" } } },
      ],
    },
  },
  priorityClassName: "high",
};

/** Installations that the tests of the chart render. */
export const releases: Record<string, Release> = {
  "as it comes": { name: "svc", namespace: "default" },
  "one node": { name: "svc", namespace: "default", files: ["one-node.yaml"] },
  "several nodes": { name: "shop", namespace: "events", files: ["several-nodes.yaml"] },
  "every value": { name: "shop", namespace: "events", values: everything },
  "no metrics": { name: "svc", namespace: "default", values: { metrics: { enabled: false } } },
};
