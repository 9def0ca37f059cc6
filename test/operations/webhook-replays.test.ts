import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import {
  configOf,
  emptyConfig,
  type PresetName,
  presetNames,
} from "../../src/domain/integrations/webhooks/rules.ts";
import { uncovered } from "../../src/domain/integrations/webhooks/verify.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const secret = "shared-with-the-provider";
const url = "https://hooks.example.test/in";
const mac = (body: string, encoding: "hex" | "base64", hash = "sha256") =>
  createHmac(hash, secret).update(body).digest(encoding);

interface Captured {
  preset: PresetName;
  verifyConfig?: object;
  body: (n: number) => string;
  headers: (body: string, query: string) => Record<string, string>;
  /** Headers that the signature leaves open; what they name is chosen by who sends. */
  id: string;
  name?: string;
}

const form = "application/x-www-form-urlencoded";
const captured: Captured[] = [
  {
    preset: "github",
    body: (n) => JSON.stringify({ ref: "main", n }),
    headers: (body) => ({ "x-hub-signature-256": `sha256=${mac(body, "hex")}` }),
    ...{ id: "x-github-delivery", name: "x-github-event" },
  },
  {
    preset: "shopify",
    body: (n) => JSON.stringify({ order: n }),
    headers: (body) => ({ "x-shopify-hmac-sha256": mac(body, "base64") }),
    ...{ id: "x-shopify-webhook-id", name: "x-shopify-topic" },
  },
  {
    preset: "linear",
    body: (n) => JSON.stringify({ type: "Issue", webhookTimestamp: Date.now() + n }),
    headers: (body) => ({ "linear-signature": mac(body, "hex") }),
    id: "linear-delivery",
  },
  {
    preset: "twilio",
    verifyConfig: { url },
    body: (n) => `MessageSid=SM${n}`,
    headers: (body, query) => ({
      ...{ "content-type": form },
      "x-twilio-signature": mac(url + query + body.replace("=", ""), "base64", "sha1"),
    }),
    id: "i-twilio-idempotency-token",
  },
];

test("every preset whose signature leaves the id or the name open stands above", () => {
  const open = presetNames.filter((preset) => {
    const { id, name } = uncovered(configOf(preset, emptyConfig));
    return id || name;
  });
  expect(captured.map(({ preset }) => preset).sort()).toEqual(open.sort());
});

describe.each(engines)("a captured delivery on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  test.each(captured)("of $preset is a repeat, whatever id and name it comes with", async (one) => {
    const { preset, verifyConfig, id, name } = one;
    const made = await server.rpc("WebhookService", "CreateWebhookSource", {
      ...{ name: preset, event_prefix: preset, preset, verify_secret: secret },
      ...(verifyConfig && { verify_config: verifyConfig }),
    });
    expect(made.status).toBe(200);
    const { id: source, ingest_token: token, notices } = made.body;
    expect(notices).toHaveLength(name === undefined ? 1 : 2);
    expect(notices.at(-1)).toContain(`header:${id}`);
    const send = async (body: string, open: Record<string, string>) => {
      const query = `?token=${token}`;
      const answer = await fetch(`${server.url}/api/v1/webhooks/${source}${query}`, {
        ...{ method: "POST", body },
        headers: { "content-type": "application/json", ...open, ...one.headers(body, query) },
      });
      // biome-ignore lint/suspicious/noExplicitAny: the shape is stated below
      const { event_id, duplicate = false } = (await answer.json()) as any;
      return { status: answer.status, event_id, duplicate };
    };
    const as = (delivery: string, event = "pushed") => ({ [id]: delivery, ...(name && { [name]: event }) });
    const body = one.body(1);
    const first = await send(body, as("d-1"));
    expect(first).toMatchObject({ status: 200, duplicate: false });
    const repeat = { status: 200, event_id: first.event_id, duplicate: true };
    expect(await send(body, as("d-1"))).toEqual(repeat);
    expect(await send(body, as("d-2"))).toEqual(repeat);
    expect(await send(body, as("d-3", "paid"))).toEqual(repeat);
    const { [id]: _none, ...nameless } = as("");
    expect(await send(body, nameless)).toEqual(repeat);
    // A provider's own retry may be signed anew: it is known by its id, and is not to be replayed either.
    const retried = one.body(2);
    expect(await send(retried, as("d-1"))).toEqual(repeat);
    expect(await send(retried, as("d-4"))).toEqual(repeat);
    const next = await send(one.body(3), as("d-5"));
    expect(next).toMatchObject({ status: 200, duplicate: false });
    expect(next.event_id).not.toBe(first.event_id);
  });
});
