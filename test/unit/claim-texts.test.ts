import { expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { claimFlush } from "../../src/domain/engine/runs/execution/claim.ts";
import { claimLimitedFlush } from "../../src/domain/engine/runs/execution/claim-limited.ts";
import { claimPacedFlush, claimPinnedFlush } from "../../src/domain/engine/runs/execution/claim-paced.ts";
import type { Sql } from "../../src/kit/sql.ts";
import { libsqlSeams, renderLibsql } from "../../src/store/libsql-text.ts";
import { postgresSeams, renderPostgres } from "../../src/store/postgres-text.ts";
import type { Flush, SyncSession } from "../../src/store/store.ts";

const slot = { leaseHash: "h", workerId: "w", deployment: "v1", leaseUntil: 2_000 };
const queue = { environmentId: "env_1", functionId: "f", slots: [slot] };
const lane = { ...queue, laneIds: ["lane"] };
const inputs = {
  plain: [claimFlush, { now: 1_000, demands: [{ ...queue, since: 0 }] }],
  limited: [claimLimitedFlush, { now: 1_000, demands: [lane] }],
  paced: [claimPacedFlush, { now: 1_000, demands: [{ ...lane, paced: true }] }],
  pinned: [claimPinnedFlush, { now: 1_000, demands: [{ ...lane, paced: true, pin: { deployment: "v1" } }] }],
} as const;

/** The statements of a claim on both engines, with a run that is claimed. */
function textsOf([flush, input]: readonly [unknown, unknown]): string {
  const { postgres, libsql } = flush as Flush<unknown, object>;
  const texts = [renderPostgres(postgres(input, postgresSeams)).text];
  const note = (query: Sql) => void texts.push(renderLibsql(query).text);
  const session = {
    seams: libsqlSeams,
    run(query: Sql) {
      note(query);
      return 1;
    },
    all(query: Sql) {
      note(query);
      return [{ run_id: "run_1", wake_at: 1, execution_seq: 1, head_start_ms: null }];
    },
    one(query: Sql) {
      note(query);
      return { lane_limit: 5, gap_us: 1_000, burst: 1, count: 0, until: null };
    },
  } as unknown as SyncSession;
  libsql(session, input);
  return texts.join("\n;\n");
}

const hash = (text: string) => createHash("sha256").update(text).digest("hex").slice(0, 16);

/** Of the commit before pins were made. */
const before = { plain: "fa2598a1a1b3b15b", limited: "29846755014a23cb", paced: "b78d5a25e71b3b27" };

test.each(["plain", "limited", "paced"] as const)("claims of %s queues know of no pins", (kind) => {
  const text = textsOf(inputs[kind]);
  expect(text).not.toContain("pinned_to");
  expect(hash(text)).toBe(before[kind]);
});

test("claims of functions that pin their runs look at the deployment, and write it", () => {
  const text = textsOf(inputs.pinned);
  expect(text).toContain("(e.pinned_to IS NULL OR e.pinned_to = f.deployment)");
  expect(text).toContain("pinned_to = COALESCE(e.pinned_to, s.deployment)");
  expect(text).toContain("AND (pinned_to IS NULL OR pinned_to = ?)");
  expect(text).toContain("x.paced = 2");
});
