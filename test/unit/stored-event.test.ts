import { expect, test } from "bun:test";
import { eventText, keyField, type StoredEvent } from "../../src/kit/stored-event.ts";

const event: StoredEvent = {
  id: "evt_1",
  name: "order.placed",
  version: 2,
  data: '{"n":12345678901234567890}',
  metadata: null,
  source: "api",
  at: Date.UTC(2026, 0, 2),
  idempotency_key: null,
};
const fields = {
  id: "evt_1",
  name: "order.placed",
  version: 2,
  timestamp: "2026-01-02T00:00:00.000Z",
  source: "api",
};

test("an event as text has its payloads as they are stored, and null or nothing for missing metadata", () => {
  const text = eventText(event, undefined, "null");
  expect(text).toEndWith(',"data":{"n":12345678901234567890},"metadata":null}');
  expect(JSON.parse(text)).toEqual({ ...fields, data: expect.anything(), metadata: null });
  expect(JSON.parse(eventText(event, undefined, "absent"))).not.toHaveProperty("metadata");
  for (const noMetadata of ["null", "absent"] as const)
    expect(JSON.parse(eventText({ ...event, metadata: '{"a":1}' }, undefined, noMetadata)).metadata).toEqual({
      a: 1,
    });
});

test("what only one reader is shown stands beside what everybody is", () => {
  expect(keyField(event)).toBeUndefined();
  const keyed = { ...event, data: "1", idempotency_key: 'k"1' };
  const text = eventText(keyed, { ...keyField(keyed), sequence: 7 }, "absent");
  expect(JSON.parse(text)).toEqual({ ...fields, data: 1, idempotency_key: 'k"1', sequence: 7 });
});
