import { type Client, clientOf, must, type Tour } from "./client.ts";

const password = "correct horse battery";

/** Every group of REST operations, with what RPC has to make for them. */
export async function tour(given: Tour): Promise<void> {
  const client = clientOf(given, given.adminKey);
  await server(client);
  await tenancy(client);
  const runId = await work(client, given.environment);
  await log(client);
  await record(client, runId);
  await schemas(client);
  await buckets(client);
  await documents(client);
  await projections(client);
  await webhooks(client);
  await policies(client);
  await people(given, client);
  await platform(given, client);
}

async function server(client: Client): Promise<void> {
  await must(client.GET("/health"));
  await must(client.GET("/ready"));
  const { transports } = await must(client.GET("/api/v1/capabilities"));
  const { routes, count } = await must(client.GET("/api/v1/routes"));
  if (!transports.includes("rest") || routes.length !== count) throw new Error("not what the server offers");
  await must(client.GET("/openapi.json"));
  await must(client.GET("/api/v1/cluster/health"));
}

async function tenancy(client: Client): Promise<void> {
  const [org] = await must(client.GET("/api/v1/orgs"));
  if (!org) throw new Error("no org");
  const byOrg = { params: { path: { id: org.id } } };
  await must(client.GET("/api/v1/orgs/{id}", byOrg));
  await must(
    client.PATCH("/api/v1/orgs/{id}", {
      ...byOrg,
      body: { preferences: { default_timezone: "Europe/Berlin" } },
    }),
  );
  const project = await must(client.POST("/api/v1/projects", { body: { name: "toured" } }));
  const byProject = { params: { path: { id: project.id } } };
  await must(client.PUT("/api/v1/projects/{id}", { ...byProject, body: { description: "Of the tour." } }));
  await must(client.GET("/api/v1/projects"));
  const body = { name: "toured", project_id: project.id };
  const { id } = await must(client.POST("/api/v1/environments", { body }));
  const byId = { params: { path: { id } } };
  await must(client.GET("/api/v1/environments/{id}", byId));
  await must(client.PUT("/api/v1/environments/{id}", { ...byId, body: { color: "#2f6fed" } }));
  await must(client.PUT("/api/v1/environments/{id}/quotas", { ...byId, body: { runs_per_minute: 600 } }));
  await must(client.GET("/api/v1/environments/{id}/quotas", byId));
  await must(client.GET("/api/v1/environments", { params: { query: { project_id: project.id } } }));
  await must(client.DELETE("/api/v1/environments/{id}", byId));
  await must(client.DELETE("/api/v1/projects/{id}", byProject));
}

/** A function and its secret, an event that starts it, and a worker that runs it. */
async function work(client: Client, environment: string): Promise<string> {
  await must(client.POST("/api/v1/secrets", { body: { name: "TOKEN", value: "s3cret" } }));
  const bySecret = { params: { path: { name: "TOKEN" } } };
  await must(client.PUT("/api/v1/secrets/{name}", { ...bySecret, body: { value: "other" } }));
  await must(client.PATCH("/api/v1/secrets/{name}", { ...bySecret, body: { description: "Of the tour." } }));
  const definition = {
    id: "toured",
    name: "Toured",
    triggers: [{ event: "toured.placed" }],
    secrets: ["TOKEN"],
    concurrency: { limit: 3 },
  };
  await must(client.POST("/svc.v1.SvcService/RegisterFunction", { body: definition }));
  await must(client.GET("/api/v1/secrets/{name}", bySecret));
  await must(client.GET("/api/v1/secrets/{name}/functions", bySecret));
  await must(client.GET("/api/v1/secrets"));
  const byWorker = { params: { path: { workerId: "guide" } } };
  await must(
    client.POST("/api/v1/workers/{workerId}/register", { ...byWorker, body: { function_ids: ["toured"] } }),
  );
  await must(client.POST("/api/v1/workers/{workerId}/heartbeat", { ...byWorker, body: { active_jobs: 0 } }));
  await must(client.GET("/api/v1/workers"));
  await must(client.GET("/api/v1/deployments"));
  const runId = await oneRun(client);
  await debounced(client, environment);
  await must(client.GET("/api/v1/circuit-breakers"));
  await must(client.GET("/api/v1/schedules"));
  await must(client.DELETE("/api/v1/secrets/{name}", bySecret));
  return runId;
}

async function oneRun(client: Client): Promise<string> {
  const event = { event: "toured.placed", data: { total: 42.5 } };
  const { runIds = [] } = await must(client.POST("/svc.v1.SvcService/Emit", { body: event }));
  const polled = { params: { path: { workerId: "guide" }, query: { available: 1 } } };
  // A poll that was held for nothing answers 204.
  let answer: Awaited<ReturnType<typeof poll>>;
  const poll = () => must(client.GET("/api/v1/workers/{workerId}/jobs", polled));
  do answer = await poll();
  while (answer === undefined);
  const [job] = answer.jobs;
  if (!job || job.run_id !== runIds[0]) throw new Error("not the job of the run");
  const fence = { execution_seq: job.execution_seq, lease_token: job.lease_token };
  const byJob = { params: { path: { workerId: "guide", jobId: job.job_id } } };
  await must(client.PUT("/api/v1/workers/{workerId}/jobs/{jobId}/ack", { ...byJob, body: fence }));
  await must(
    client.PUT("/api/v1/workers/{workerId}/jobs/{jobId}", {
      ...byJob,
      body: { ...fence, status: "completed", output: { sent: true } },
    }),
  );
  await must(
    client.POST("/api/v1/workers/{workerId}/exchange", {
      params: { path: { workerId: "guide" } },
      body: { reports: [{ job_id: job.job_id, ...fence, status: "completed" }], available: 0, hold_ms: 0 },
    }),
  );
  const run = await must(client.POST("/svc.v1.SvcService/GetRun", { body: { id: job.run_id } }));
  if (run.status !== "RUN_STATUS_COMPLETED") throw new Error(`the run is ${run.status}`);
  return job.run_id;
}

async function debounced(client: Client, environment: string): Promise<void> {
  const definition = {
    id: "rested",
    triggers: [{ event: "toured.rested" }],
    debounce: { periodMs: 3_600_000, key: "data.cart" },
  };
  await must(client.POST("/svc.v1.SvcService/RegisterFunction", { body: definition }));
  const event = { event: "toured.rested", data: { cart: "c-1" } };
  await must(client.POST("/svc.v1.SvcService/Emit", { body: event }));
  const { entries } = await must(client.GET("/api/v1/debounce/entries"));
  const [entry] = entries;
  if (!entry) throw new Error("nothing is debounced");
  const key = btoa(entry.debounce_key).replace(/=+$/, "");
  const path = { envID: environment, fnID: entry.function_id, key };
  await must(client.DELETE("/api/v1/debounce/entries/{envID}/{fnID}/{key}", { params: { path } }));
}

async function log(client: Client): Promise<void> {
  const { events } = await must(
    client.GET("/api/v1/events", { params: { query: { name: "toured", limit: 10 } } }),
  );
  const [event] = events;
  if (!event) throw new Error("no event");
  await must(client.GET("/api/v1/events/{id}", { params: { path: { id: event.id } } }));
  await must(client.GET("/api/v1/events/names"));
  const query = { query: "SELECT name, data FROM events LIMIT 2" };
  const { rows } = await must(client.POST("/api/v1/sql", { body: query }));
  if (rows.length !== 2) throw new Error("not two rows");
}

async function record(client: Client, runId: string): Promise<void> {
  await must(client.GET("/api/v1/runs/{id}/streams", { params: { path: { id: runId } } }));
  await must(client.GET("/api/v1/audit", { params: { query: { run_id: runId } } }));
  await must(client.GET("/api/v1/audit", { params: { query: { limit: 5 } } }));
  const about = { kind: "run", id: runId } as const;
  const { links } = await must(client.GET("/api/v1/causality", { params: { query: about } }));
  if (links.length === 0) throw new Error("the run has no cause");
  await must(client.GET("/api/v1/audit/settings"));
  await must(client.GET("/api/v1/audit/verify"));
  await must(client.GET("/api/v1/integrity"));
  await must(client.GET("/api/v1/overview"));
  await must(client.GET("/api/v1/debug/requests"));
  await must(client.DELETE("/api/v1/debug/requests"));
  await must(client.GET("/api/v1/usage", { params: { query: { group_by: "function" } } }));
  await must(client.GET("/api/v1/flow/emit-edges"));
  await must(client.GET("/api/v1/flow/invoke-edges", { params: { query: { hours: 1 } } }));
  const asked = { action: "cancel", filter: { function_id: "of-nothing" }, reason: "a tour" };
  const { id } = await must(client.POST("/api/v1/repairs", { body: asked }));
  await must(client.GET("/api/v1/repairs/{id}/items", { params: { path: { id } } }));
  const replayed = { function_id: "toured", events: { pattern: "toured.nothing" } };
  await must(client.POST("/api/v1/replays/preview", { body: replayed }));
  await must(client.POST("/api/v1/replays", { body: { ...replayed, reason: "a tour" } }));
  await must(client.GET("/api/v1/errors", { params: { query: { limit: 5 } } }));
  await alerted(client);
  const marked = { id: "marked", attributes: [{ name: "toured" }] };
  await must(client.POST("/svc.v1.SvcService/RegisterFunction", { body: marked }));
  await must(client.POST("/svc.v1.SvcService/RegisterFunction", { body: { id: "marked" } }));
  await must(client.GET("/api/v1/attributes"));
  await must(client.GET("/api/v1/batches"));
  await must(client.DELETE("/api/v1/attributes/{name}", { params: { path: { name: "toured" } } }));
  await must(client.PUT("/api/v1/retention", { body: { days: 30 } }));
  await must(client.GET("/api/v1/retention"));
  await must(client.GET("/api/v1/outbox/dead-letter", { params: { query: { env: "production" } } }));
}

async function schemas(client: Client): Promise<void> {
  const registered = {
    event_name: "toured.checked",
    schema_json: '{"type":"object","required":["total"]}',
    description: "Of the tour.",
  };
  await must(client.POST("/api/v1/events/schemas", { body: registered }));
  await must(client.GET("/api/v1/events/schemas"));
  const byName = { params: { path: { event_name: "toured.checked" } } };
  const { version } = await must(client.GET("/api/v1/events/schemas/{event_name}", byName));
  const path = { ...byName.params.path, version };
  await must(client.GET("/api/v1/events/schemas/{event_name}/{version}", { params: { path } }));
  const upcast = { eventName: "toured.checked", fromVersion: 1, data: { total: 1 } };
  await must(client.POST("/api/v1/events/upcast", { body: upcast }));
  await must(client.PUT("/api/v1/events/enforcement", { body: { mode: "warn" } }));
  await must(client.GET("/api/v1/events/enforcement"));
  await must(client.DELETE("/api/v1/events/schemas/{event_name}/{version}", { params: { path } }));
}

async function buckets(client: Client): Promise<void> {
  await must(client.POST("/api/v1/kv/buckets", { body: { name: "carts", history: 2 } }));
  const bucket = { bucket: "carts" };
  await must(client.GET("/api/v1/kv/buckets"));
  await must(client.GET("/api/v1/kv/buckets/{bucket}", { params: { path: bucket } }));
  const path = { ...bucket, key: "c-1" };
  const { revision } = await must(
    client.PUT("/api/v1/kv/buckets/{bucket}/keys/{key}", {
      params: { path, query: { ttl_seconds: 60 }, header: { "If-None-Match": "*" } },
      body: '{"items":2}',
      bodySerializer: (body) => body,
    }),
  );
  const { value } = await must(client.GET("/api/v1/kv/buckets/{bucket}/keys/{key}", { params: { path } }));
  if (atob(value) !== '{"items":2}') throw new Error(`the value is ${atob(value)}`);
  await must(
    client.GET("/api/v1/kv/buckets/{bucket}/keys", { params: { path: bucket, query: { filter: "*" } } }),
  );
  await must(
    client.DELETE("/api/v1/kv/buckets/{bucket}/keys/{key}", {
      params: { path, header: { "If-Match": `${revision}` } },
    }),
  );
  await must(client.DELETE("/api/v1/kv/buckets/{bucket}", { params: { path: bucket } }));
}

async function documents(client: Client): Promise<void> {
  const params = { path: { name: "limits" } };
  const { revision } = await must(client.POST("/api/v1/config/{name}", { params, body: { most: 5 } }));
  await must(client.PATCH("/api/v1/config/{name}", { params, body: { least: 1 } }));
  const { data } = await must(client.GET("/api/v1/config/{name}", { params }));
  if (data?.most !== 5) throw new Error("not the document");
  await must(client.GET("/api/v1/config/{name}/history", { params }));
  await must(
    client.POST("/api/v1/config/{name}/rollback/{revision}", {
      params: { path: { ...params.path, revision } },
    }),
  );
  await must(client.GET("/api/v1/config"));
  await must(client.DELETE("/api/v1/config/{name}", { params }));
}

async function projections(client: Client): Promise<void> {
  const name = "totals";
  await must(
    client.POST("/svc.v1.ProjectionService/RegisterProjection", { body: { name, events: ["toured.*"] } }),
  );
  const polled = await must(
    client.POST("/svc.v1.ProjectionService/PollProjectionEvents", { body: { name } }),
  );
  const last = polled.events?.at(-1);
  if (!last) throw new Error("no event to fold");
  const body = {
    name,
    state: { total: 42.5 },
    lastEventId: last.id,
    lastEventSeq: last.seq,
    fence: polled.fence,
  };
  await must(client.POST("/svc.v1.ProjectionService/SaveProjectionState", { body }));
  const params = { path: { name } };
  const { state } = await must(client.GET("/api/v1/projections/{name}", { params }));
  if (state === null) throw new Error("no state");
  await must(client.GET("/api/v1/projections/{name}/partitions", { params }));
  await must(client.DELETE("/api/v1/projections/{name}", { params }));
}

async function webhooks(client: Client): Promise<void> {
  const source = await must(
    client.POST("/svc.v1.WebhookService/CreateWebhookSource", {
      body: { name: "Shop", eventPrefix: "shop" },
    }),
  );
  const { id = "", ingestToken = "" } = source;
  await must(
    client.POST("/api/v1/webhooks/{id}", {
      params: { path: { id }, query: { token: ingestToken } },
      headers: { "Content-Type": "application/json" },
      body: '{"type":"paid"}',
      bodySerializer: (body) => body,
    }),
  );
  await must(client.GET("/api/v1/flow/webhooks"));
}

async function policies(client: Client): Promise<void> {
  const role = await must(client.POST("/api/v1/roles", { body: { name: "Guide", base: "viewer" } }));
  const byRole = { params: { path: { id: role.id } } };
  await must(client.GET("/api/v1/roles"));
  await must(client.GET("/api/v1/roles/{id}", byRole));
  await must(client.PATCH("/api/v1/roles/{id}", { ...byRole, body: { name: "Guides" } }));
  const made = { name: "no kv", effect: "deny", actions: "secrets:*", resources: "irn:svc:*:*:kv:*:locked" };
  const policy = await must(client.POST("/api/v1/policies", { body: made }));
  const byPolicy = { params: { path: { id: policy.id } } };
  await must(client.GET("/api/v1/policies"));
  await must(
    client.PATCH("/api/v1/policies/{id}", { ...byPolicy, body: { change_reason: "tour", name: "kv" } }),
  );
  await must(client.GET("/api/v1/policies/{id}", byPolicy));
  await must(client.GET("/api/v1/policies/{id}/versions", byPolicy));
  const version = { params: { path: { id: policy.id, version: 1 } } };
  await must(client.POST("/api/v1/policies/{id}/rollback/{version}", version));
  await must(
    client.POST("/api/v1/policies/dry-run", {
      body: { policy_id: policy.id, subject: { id: "ak_one" }, request: { type: "kv" }, last: 10 },
    }),
  );
  await must(client.POST("/api/v1/roles/{id}/policies", { ...byRole, body: { policy_id: policy.id } }));
  await must(client.GET("/api/v1/roles/{id}/policies", byRole));
  const both = { params: { path: { id: role.id, policy_id: policy.id } } };
  await must(client.DELETE("/api/v1/roles/{id}/policies/{policy_id}", both));
  await must(client.DELETE("/api/v1/policies/{id}", byPolicy));
  await must(client.DELETE("/api/v1/roles/{id}", byRole));
  const [template] = await must(client.GET("/api/v1/policy-templates"));
  if (!template) throw new Error("no bundle of policies");
  await must(client.POST("/api/v1/policy-templates/{id}/install", { params: { path: { id: template.id } } }));
}

async function people(given: Tour, client: Client): Promise<void> {
  const key = await must(client.POST("/api/v1/apikeys", { body: { name: "guide", expires_in: "1h" } }));
  const byKey = { params: { path: { id: key.id } } };
  await must(client.GET("/api/v1/apikeys"));
  await must(client.GET("/api/v1/apikeys/{id}", byKey));
  await must(client.PUT("/api/v1/apikeys/{id}/roles", { ...byKey, body: { role_ids: ["role_viewer"] } }));
  await must(client.POST("/api/v1/apikeys/{id}/rotate", byKey));
  await must(client.DELETE("/api/v1/apikeys/{id}", byKey));
  const email = "ada@example.com";
  const user = await must(client.POST("/api/v1/users", { body: { email, password, roles: ["viewer"] } }));
  const byUser = { params: { path: { id: user.id } } };
  await must(client.GET("/api/v1/users"));
  await must(client.GET("/api/v1/users/{id}", byUser));
  await must(client.GET("/api/v1/auth/sessions"));
  await must(client.GET("/api/v1/sessions", { params: { query: { user_id: user.id } } }));
  await must(client.DELETE("/api/v1/users/{id}/sessions", byUser));
  await must(client.PATCH("/api/v1/users/{id}", { ...byUser, body: { name: "Ada" } }));
  await must(client.POST("/api/v1/auth/desktop-session"));
  const { token } = await must(client.POST("/api/v1/auth/login", { body: { email, password } }));
  const ada = clientOf(given, token);
  await must(ada.GET("/api/v1/auth/validate"));
  await must(ada.POST("/api/v1/auth/logout"));
  await must(client.DELETE("/api/v1/users/{id}", byUser));
  const provider = { name: "Example", issuer: "https://login.example.com", client_id: "svc" };
  const issuer = await must(client.POST("/api/v1/issuers", { body: provider }));
  const byIssuer = { params: { path: { id: issuer.id } } };
  await must(client.PATCH("/api/v1/issuers/{id}", { ...byIssuer, body: { name: "Other" } }));
  await must(client.GET("/api/v1/auth/issuers"));
  await must(client.PATCH("/api/v1/sign-in", { body: { passwords: true } }));
  await must(client.GET("/api/v1/sign-in"));
  await must(client.DELETE("/api/v1/issuers/{id}", byIssuer));
}

async function alerted(client: Client): Promise<void> {
  const byRule = { params: { path: { name: "toured" } } };
  const targets = [{ type: "slack", url: "http://127.0.0.1:9/toured" }];
  await must(
    client.PUT("/api/v1/alert-rules/{name}", { ...byRule, body: { condition: "dead_letter", targets } }),
  );
  await must(client.GET("/api/v1/alert-rules/{name}", byRule));
  await must(client.POST("/api/v1/alert-rules/{name}/test", byRule));
  await must(client.POST("/api/v1/alert-rules/{name}/silence", { ...byRule, body: {} }));
  for (const list of ["/api/v1/alert-rules", "/api/v1/alerts"] as const) await must(client.GET(list));
  await must(client.DELETE("/api/v1/alert-rules/{name}", byRule));
}

async function platform(given: Tour, client: Client): Promise<void> {
  const root = { email: "root@example.com", password, name: "Root" };
  await must(client.POST("/api/v1/platform/bootstrap", { body: root }));
  const { token } = await must(
    client.POST("/api/v1/platform/auth/login", { body: { email: root.email, password } }),
  );
  const operator = clientOf(given, token);
  const other = { email: "grace@example.com", password, name: "Grace" };
  const { id } = await must(operator.POST("/api/v1/platform/users", { body: other }));
  const byUser = { params: { path: { id } } };
  await must(operator.GET("/api/v1/platform/users"));
  await must(operator.PATCH("/api/v1/platform/users/{id}", { ...byUser, body: { is_active: false } }));
  await must(operator.DELETE("/api/v1/platform/users/{id}", byUser));
  await must(operator.GET("/api/v1/platform/roles"));
  await must(operator.GET("/api/v1/platform/policies"));
  const tenant = await must(operator.POST("/api/v1/platform/tenants", { body: { name: "Toured" } }));
  const byTenant = { params: { path: { id: tenant.id } } };
  await must(operator.GET("/api/v1/platform/tenants/{id}", byTenant));
  await must(operator.GET("/api/v1/platform/tenants"));
  await must(operator.DELETE("/api/v1/platform/tenants/{id}", byTenant));
  await must(operator.GET("/api/v1/platform/audit"));
  await must(operator.GET("/api/v1/capacity/lanes"));
  await must(operator.GET("/api/v1/capacity/queue"));
  await must(operator.GET("/api/v1/capacity/leases"));
  await must(operator.GET("/api/v1/capacity/buckets"));
  await must(operator.GET("/api/v1/capacity/sessions"));
  await must(operator.GET("/api/v1/capacity/credits"));
  await must(operator.GET("/api/v1/capacity/stats"));
  await must(operator.GET("/api/v1/tenants", { headers: { "X-Svc-Org": "org_default" } }));
}
