import { expect, test } from "bun:test";
import { isSubject } from "../../src/bus/bus.ts";
import type { LoggedEvent } from "../../src/domain/log/core/service.ts";
import { mirrorDrafts } from "../../src/domain/record/outbox/rules.ts";
import { tooLarge } from "../../src/domain/record/outbox/service.ts";
import { parseSettings } from "../../src/settings/settings.ts";

const event = (more: Partial<LoggedEvent> = {}): LoggedEvent => ({
  id: "evt_1",
  position: 7,
  name: "order.placed",
  version: 2,
  data: '{"total":1.50}',
  metadata: null,
  source: "api",
  at: 0,
  idempotency_key: null,
  entity_id: null,
  entity_type: null,
  entity_version: null,
  run_id: null,
  redacted_at: null,
  ...more,
});

test("an event is mirrored under its name, its payload as it was logged", () => {
  const drafts = mirrorDrafts("env_1", event({ metadata: '{"by":"ada"}', run_id: "run_1" }));
  expect(drafts).toMatchObject([
    {
      environmentId: "env_1",
      eventId: "evt_1",
      topic: "events:order.placed",
      kind: "mirror",
      metadata: {
        subject: "env_1.events.order.placed",
        messageId: "evt_1/events:order.placed",
        headers: { "Svc-Topic": "events:order.placed", "Svc-Sequence": "7" },
      },
    },
  ]);
  expect(drafts[0]!.payload).toContain('"data":{"total":1.50}');
  expect(JSON.parse(drafts[0]!.payload)).toEqual({
    id: "evt_1",
    name: "order.placed",
    environmentId: "env_1",
    sequence: 7,
    version: 2,
    timestamp: "1970-01-01T00:00:00.000Z",
    source: "api",
    runId: "run_1",
    data: { total: 1.5 },
    metadata: { by: "ada" },
  });
});

test("an append is mirrored twice, under its name and under its entity, with ids of their own", () => {
  const drafts = mirrorDrafts(
    "env_1",
    event({ entity_id: "cart-1", entity_type: "cart", entity_version: 3, name: "item.added" }),
  );
  expect(drafts.map(({ topic, entityId, metadata }) => [topic, entityId, metadata.subject])).toEqual([
    ["events:item.added", "cart-1", "env_1.events.item.added"],
    ["entity:cart.cart-1.item.added", "cart-1", "env_1.entity.cart.cart-1.item.added"],
  ]);
  expect(new Set(drafts.map(({ metadata }) => metadata.messageId)).size).toBe(2);
  expect(JSON.parse(drafts[1]!.payload)).toMatchObject({ entityId: "cart-1", entityVersion: 3 });
});

test("whatever an event is called, its subject is one that a bus takes", () => {
  for (const name of ["ü.ö", "a:b", "x".repeat(248), "a/b", "$SYS.x"]) {
    const [draft] = mirrorDrafts("env_1", event({ name }));
    expect(isSubject(draft!.metadata.subject as string)).toBe(true);
  }
  for (const bad of ["", ".", "a.", ".a", "a..b", "a.*", ">", "a b", "a\n"])
    expect(isSubject(bad)).toBe(false);
});

test("what is too large is counted in bytes", () => {
  expect(tooLarge("é".repeat(512), 1_024)).toBeUndefined();
  expect(tooLarge("é".repeat(513), 1_024)).toMatchObject({ trouble: "refused" });
});

test("a mirror needs something to mirror to", () => {
  expect(parseSettings([], { SVC_NATS_MIRROR: "true" })).toEqual({
    ok: false,
    errors: ["SVC_NATS_MIRROR: needs NATS_URL, there is nothing to mirror to"],
  });
  expect(parseSettings([], { SVC_NATS_MIRROR: "true", NATS_URL: "nats://127.0.0.1:4222" }).ok).toBe(true);
});
