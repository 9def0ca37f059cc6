import type { TestServer } from "../support/server.ts";

/** One of each thing that the pages of state show; `text` stands wherever text may stand. */
export async function furnish(server: TestServer, text = "kept for the checkout"): Promise<void> {
  const { api, rpc } = server;
  const made = await api("/api/v1/kv/buckets", { body: { name: "sessions", description: text, history: 5 } });
  if (made.status !== 201) throw new Error(`no bucket: ${JSON.stringify(made.body)}`);
  const put = (key: string, value: unknown) =>
    api(`/api/v1/kv/buckets/sessions/keys/${key}`, { method: "PUT", body: value });
  await put("users/ada", { name: text });
  await put("users/ada", { name: text, cart: [1, 2, 3] });
  await put("users/grace", "plain");
  await api("/api/v1/config/checkout", { body: { currency: "EUR", retries: 3, note: text } });
  await api("/api/v1/config/checkout", { body: { currency: "USD", retries: 3, note: text } });
  await api("/api/v1/secrets", { body: { name: "STRIPE_KEY", value: "sk_secret", description: text } });
  await rpc("AgentToolsService", "RegisterTool", {
    ...{ agentName: "planner", callbackUrl: "http://127.0.0.1:9/tools" },
    tools: [
      {
        ...{ name: "plan", description: text, requiredScopes: [], timeoutMs: 1_000 },
        inputSchemaJson: JSON.stringify({ type: "object", properties: { goal: { type: "string" } } }),
      },
    ],
  });
  await rpc("AlertService", "PutAlertRule", {
    ...{ name: "failed-runs", condition: "run_failed", functionId: text },
    targets: [{ type: "email", to: ["ops@example.test"] }],
  });
  await api(`/api/v1/environments/${server.env}/quotas`, {
    method: "PUT",
    body: { runs_per_minute: 10_000, concurrent_runs: 4 },
  });
}

/** The id of a deny policy. */
export async function policyIn(server: TestServer, name = "no salaries"): Promise<string> {
  const { body } = await server.api("/api/v1/policies", {
    body: { name, effect: "deny", actions: "events:emit", resources: "irn:svc:*:*:event:*:salary.*" },
  });
  return body.id;
}
