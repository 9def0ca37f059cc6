import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { countEvents, eventsOf } from "../../src/domain/access/platform/audit-rows.ts";
import { dueDeliveries } from "../../src/domain/integrations/alerts/alert-rows.ts";
import { dueLetters, listLetters } from "../../src/domain/integrations/deliveries/letter-rows.ts";
import { listDeliveries } from "../../src/domain/integrations/webhooks/rows.ts";
import { openEventLog } from "../../src/domain/log/core/service.ts";
import { listStreams } from "../../src/domain/log/streams/rows.ts";
import { countRows, listRows } from "../../src/domain/record/audit/rows.ts";
import { trailRuns } from "../../src/domain/record/history/rows.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { storeOf } from "../cluster/load.ts";
import { lookingAt, rowsReadFor } from "../support/plan-rows.ts";
import { plant } from "../support/plant.ts";
import { type Home, makeHome } from "../support/server.ts";

const stored = 60_000;
describe("rows that lists read of 60,000, of which none matches", () => {
  let home: Home;
  let store: Store;
  let reader: Store;
  let read = 0;

  beforeAll(async () => {
    home = await makeHome("postgres");
    store = await storeOf(home);
    const own = { environment_id: "'env_1'" };
    const id = (kind: string) => `'${kind}_0' || substr(CAST(100000000 + n AS TEXT), 2)`;
    await plant(store, "events", stored, {
      ...{ ...own, position: "n", id: id("evt"), name: "'busy'", version: "1", data: "'{}'" },
      ...{ source: "'api'", at: "n" },
    });
    await plant(store, "auth_audit", stored, {
      ...{ org_id: "'org_1'", sequence: "n", id: id("aud"), at: "n", roles: "'[]'", caller_id: "'ak_1'" },
    });
    await plant(store, "platform_audit", stored, {
      ...{ id: id("pae"), platform_key_id: "'ak_1'", event_type: "'a'", payload: "'{}'", created_at: "n" },
    });
    await plant(store, "webhook_deliveries", stored, {
      ...{ ...own, id: id("whd"), source_id: "'whk_1'", created_at: "n", status: "'accepted'" },
    });
    await plant(store, "webhook_dead_letters", stored, {
      ...{ ...own, endpoint_id: "'whe_1'", event_id: id("evt"), position: "n", dead_at: "n" },
    });
    await plant(store, "alert_deliveries", stored, {
      ...{ ...own, alert_id: id("alr"), target: "'one'", state: "'waiting'", due_at: "n" },
    });
    await plant(store, "streams", stored, { ...own, entity_id: id("order"), entity_type: "'order'" });
    await plant(store, "runs", stored, {
      ...{ ...own, id: id("run"), function_id: "'busy'", status: "'completed'", created_at: "n" },
      ...{ ended_at: "n", updated_at: "n" },
    });
    await store.write((session) => session.run(sql`ANALYZE`));
    reader = lookingAt(store, async (query) => {
      read += await rowsReadFor(store, query);
    });
  }, 120_000);
  afterAll(async () => {
    await store?.close();
    await home?.remove();
  });

  const page = { limit: 20 };
  const calls = { orgId: "org_1", action: "none", ...page };
  const keyAndType = { keyId: "ak_1", type: "none" };
  const failed = { environmentId: "env_1", sourceId: "whk_1", status: "failed" };
  const streams = { environmentId: "env_1", search: "none", includeDeleted: false };
  const endpoint = { environment_id: "env_1", endpoint_id: "whe_1" };
  const lists: [name: string, most: number, list: () => Promise<unknown>][] = [
    ["names of a source", 3 * 30_000 + 1, () => openEventLog(reader).names("env_1", { source: "none" })],
    ["events of a source", 5 * 10_000, () => openEventLog(reader).list("env_1", { source: "none" })],
    ["calls of an action", 20_100, () => listRows(reader, calls)],
    [
      "calls from the middle",
      50,
      () => listRows(reader, { orgId: "org_1", before: { at: 30_000, sequence: 30_000 }, ...page }),
    ],
    ["calls of an action, counted", 20_002, () => countRows(reader, calls)],
    ["the platform's lines", 20_000, () => eventsOf(reader, keyAndType, { after: undefined, ...page })],
    ["the platform's lines, counted", 20_002, () => countEvents(reader, keyAndType)],
    [
      "deliveries behind a cursor",
      20_100,
      () => listDeliveries(reader, failed, { before: "whd_9", offset: 0, bodyCharsMax: 1, ...page }),
    ],
    ["letters that are due", 20, () => dueLetters(reader, endpoint, 20)],
    ["alert messages that are due", 4, () => dueDeliveries(reader, stored, { most: 64, ofEach: 16 })],
    ["letters", 60, () => listLetters(reader, endpoint, { limit: 20, offset: 40 })],
    [
      "streams behind a cursor",
      20_000,
      () => listStreams(reader, streams, { after: "a", offset: 0, ...page }),
    ],
    [
      "runs that changed",
      20_000,
      () => trailRuns(reader, { environmentId: "env_1", from: 9e15 }, undefined, 500),
    ],
    [
      "runs from the middle",
      500,
      () => trailRuns(reader, { environmentId: "env_1" }, { at: 30_000, id: "run_000030000" }, 500),
    ],
  ];

  test.each(lists)("%s: at most %d", async (name, most, list) => {
    read = 0;
    await list();
    expect(`${name}: ${read <= most ? "bounded" : `${read} rows read, of ${most}`}`).toBe(`${name}: bounded`);
  });
});
