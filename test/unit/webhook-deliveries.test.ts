import { expect, test } from "bun:test";
import { headersOf, outcomeOf } from "../../src/domain/integrations/deliveries/rules.ts";
import { verifyWebhook, WebhookVerificationError } from "../../src/sdk/index.ts";

const now = Date.UTC(2026, 10, 27, 5, 0, 0);
const httpDate = (at: number) => new Date(at).toUTCString();

test("a receiver says in seconds or by a date when it wants to be asked again", () => {
  const asked = (headers: Record<string, string>) => {
    const outcome = outcomeOf({ status: 503, headers: new Headers(headers) }, now);
    return outcome.kind === "failed" ? outcome.retryAfterMs : outcome.kind;
  };
  expect(asked({ "retry-after": "90" })).toBe(90_000);
  expect(asked({ "retry-after": httpDate(now + 90_000) })).toBe(90_000);
  // By the clock of the receiver, where it says what that shows.
  expect(asked({ "retry-after": httpDate(now + 90_000), date: httpDate(now + 60_000) })).toBe(30_000);
  expect(asked({ "retry-after": httpDate(now - 90_000) })).toBe(0);
  for (const text of ["soon", "-1", "2026-11-27", "Fri, 99 Nov 2026 05:00:00 GMT"])
    expect([text, asked({ "retry-after": text })]).toEqual([text, undefined]);
  expect(asked({})).toBeUndefined();
});

const secret = `whsec_${btoa("k".repeat(32))}`;

test("a signature counts wherever it stands among several", async () => {
  const body = '{"type":"a","data":1}';
  const { "webhook-signature": right, ...headers } = headersOf("evt_1", body, [secret], now);
  const wrong = `v1,${btoa("x".repeat(32))}`;
  const check = (sent: object) =>
    verifyWebhook({ headers: { ...headers, ...sent } as never, body, secret, now }).then(({ id }) => id);
  for (const signature of [
    right,
    [wrong, right],
    [right, wrong],
    `${wrong}  ${right}`,
    [`${wrong} ${wrong}`, right],
  ])
    expect([signature, await check({ "webhook-signature": signature })]).toEqual([signature, "evt_1"]);
  // Several lines of one header, as the runtime joins them.
  for (const order of [
    [right, wrong],
    [wrong, right],
  ] as string[][]) {
    const sent = new Headers(headers);
    for (const one of order) sent.append("webhook-signature", one);
    expect((await verifyWebhook({ headers: sent, body, secret, now })).id).toBe("evt_1");
  }
  await expect(check({ "webhook-signature": [wrong, wrong] })).rejects.toThrow(WebhookVerificationError);
});

test("a body that was parsed or is no bytes is a mistake of the program", async () => {
  const { ...headers } = headersOf("evt_1", "{}", [secret], now);
  for (const body of [{}, [], new ArrayBuffer(2), 7, null, undefined])
    await expect(verifyWebhook({ headers, body: body as never, secret, now })).rejects.toThrow(
      "body: must be text or bytes",
    );
  expect((await verifyWebhook({ headers, body: new TextEncoder().encode("{}"), secret, now })).id).toBe(
    "evt_1",
  );
});
