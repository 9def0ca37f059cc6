import { expect } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import type { Visitor } from "./every-route.ts";
import { made } from "./made.ts";
import type { CallOptions, TestServer } from "./server.ts";
import { until } from "./until.ts";

export type FurnishedOrg = Awaited<ReturnType<typeof furnishOrg>>;

/** One org with the same names as every other, and a marker in all that can hold text. */
export async function furnishOrg(server: TestServer, org: string) {
  const { store, tenancy, keys } = server.running.domain;
  const orgId = `org_${org}`;
  const marker = `MARKER-OF-${org.toUpperCase()}`;
  await store.write((session) =>
    session.run(
      sql`INSERT INTO orgs (id, name, created_at, updated_at) VALUES (${orgId}, ${`same ${marker}`}, 1, 1)`,
    ),
  );
  const projectId = `proj_${org}`;
  await store.write((session) =>
    session.run(
      sql`INSERT INTO projects (id, org_id, name, created_at, updated_at) VALUES (${projectId}, ${orgId}, ${"same"}, 1, 1)`,
    ),
  );
  // Without a project it would be anybody's.
  const { id: environmentId } = await tenancy.createEnvironment({ orgId, projectId, name: "same" });
  const make = (name: string, roleIds: string[]) => keys.create({ orgId, environmentId, name, roleIds });
  const { key } = await make("same", ["role_admin"]);
  const api = async (path: string, options: CallOptions = {}) => {
    const answer = await server.api(path, { key, ...options });
    expect(answer.status, `${path} ${JSON.stringify(answer.body)}`).toBeLessThan(300);
    return answer.body;
  };
  const rpc = (method: string, body: object) => api(`/svc.v1.SvcService/${method}`, { body });
  for (const { ask } of Object.values(made)) {
    const { path, ...options } = ask({ name: "same", marker });
    await api(path, options);
  }
  await rpc("Emit", { event: "same.event", data: { marker } });
  const worker = "/api/v1/workers/same";
  const { jobs } = await until(() => api(`${worker}/jobs?available=1`), { about: "a job" });
  const [job] = jobs;
  const { execution_seq, lease_token } = job;
  await api(`${worker}/jobs/${job.job_id}`, {
    method: "PUT",
    body: {
      execution_seq,
      lease_token,
      status: "completed",
      output: { marker },
      attributes: { same: marker },
    },
  });
  await rpc("Emit", { event: "same.event", data: { marker } });
  await rpc("Emit", { event: marker });
  await api("/svc.v1.PubSubService/Publish", { body: { topic: marker } });
  await rpc("RegisterFunction", {
    ...{ id: `batched.${marker}`, triggers: [{ event: "batched.event" }] },
    batch: { size: 5, timeoutMs: 3_600_000 },
  });
  await rpc("Emit", { event: "batched.event" });
  await rpc("RegisterFunction", {
    id: "later",
    triggers: [{ event: "later.event" }, { event: marker, cron: "0 0 1 1 *" }],
    debounce: { periodMs: 3_600_000, key: "data.marker" },
  });
  await rpc("Emit", { event: "later.event", data: { marker } });
  // Who tries ids of the org reads it.
  await api("/svc.v1.EntityStreamService/AppendEvent", {
    body: { entityId: environmentId, entityType: "same", eventName: "same.appended", data: { marker } },
  });
  await api("/svc.v1.EntityStreamService/CreateSnapshot", {
    body: { entityId: "same", entityType: marker, entityVersion: 1, state: { marker } },
  });
  const role = await api("/api/v1/roles", { body: { name: "same" } });
  const policy = await api("/api/v1/policies", {
    body: { name: "same", effect: "deny", actions: "*", resources: `irn:svc:*:*:event:*:${marker}` },
  });
  await api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policy.id } });
  await api("/api/v1/secrets/same", { method: "PUT", body: { value: `${marker}-SECRET` } });
  await api("/api/v1/config/same", { body: { marker } });
  await api(`/api/v1/config/${marker}`, { body: {} });
  await api("/api/v1/kv/buckets/same/keys/same", { method: "PUT", body: { marker } });
  const email = `${org}@example.test`;
  const password = `correct horse ${org}`;
  await api("/api/v1/users", { body: { email, name: marker, password, roles: ["admin"] } });
  const issuer = `https://${marker}.example.test`;
  const roles = [{ value: marker, role: "viewer" }];
  await api("/api/v1/issuers", { body: { name: "same", issuer, client_id: marker, roles } });
  await store.write((session) =>
    session.run(sql`INSERT INTO identities (org_id, issuer, subject, user_id, created_at)
      VALUES (${orgId}, ${issuer}, ${marker}, ${marker}, 1)`),
  );
  const hour = Date.now() - (Date.now() % 3_600_000);
  for (const kind of ["start", "emit", "invoke", "stream", "topic", "wait"])
    await store.write((session) =>
      session.run(sql`INSERT INTO flow_edges (environment_id, kind, hour, source, target, count)
        VALUES (${environmentId}, ${kind}, ${hour}, ${marker}, ${marker}, 1)`),
    );
  await store.write((session) =>
    session.run(sql`INSERT INTO usage_days (environment_id, day, function_id, started, completed, failed, cancelled,
        steps, worker_ms, events, event_bytes)
      VALUES (${environmentId}, ${hour - (hour % 86_400_000)}, ${marker}, 1, 1, 1, 1, 1, 1, 1, 1)`),
  );
  await store.write((session) =>
    session.run(sql`INSERT INTO error_groups (environment_id, id, function_id, code, message, frame, count, first_seen_at,
        last_seen_at, sample_run_id)
      VALUES (${environmentId}, ${`err_${org}`}, 'same', ${marker}, ${marker}, ${marker}, 1, 1, 1, ${job.run_id})`),
  );
  await store.write((session) =>
    session.run(sql`INSERT INTO alerts (environment_id, id, rule, condition, subject, detail, count, opened_at, seen_at)
      VALUES (${environmentId}, ${`alr_${org}`}, ${marker}, 'dead_letter', '', ${marker}, 1, 1, 1)`),
  );
  const schedule = () => store.one(sql`SELECT 1 FROM schedules WHERE environment_id = ${environmentId}`);
  await until(schedule, { about: "the leader to take up a cron trigger" });
  await server.running.tick("audit.flush");
  const session = (await api("/api/v1/auth/login", { body: { email, password }, key: null })).token;
  const desktop = (await api("/api/v1/auth/desktop-session", { method: "POST" })).token;
  const { key: developer } = await make("same", ["role_developer"]);
  const { key: viewer } = await make("same", ["role_viewer"]);
  const bearer = (text: string): Visitor => ({ headers: { authorization: `Bearer ${text}` } });
  /** Every kind of credential that a tenant can have. */
  const visitors: Record<string, Visitor> = {
    admin: bearer(key),
    developer: bearer(developer),
    viewer: bearer(viewer),
    "key in the query": { headers: {}, query: `?token=${key}` },
    session: bearer(session),
    cookie: { headers: { cookie: `svc_dashboard_token=${session}` } },
    desktop: bearer(desktop),
  };
  return {
    orgId,
    environmentId,
    marker,
    projectId,
    key,
    visitors,
    /** Of the run that is over. */
    runId: job.run_id as string,
    api,
    rpc,
  };
}
