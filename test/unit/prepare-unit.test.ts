import { expect, test } from "bun:test";
import { prepareUnit } from "../../src/domain/engine/emit/prepare.ts";
import type { Definitions } from "../../src/domain/engine/functions/definition.ts";
import { definitionOf } from "../../src/domain/engine/functions/rules.ts";
import { testClock } from "../../src/kit/clock.ts";
import { Fault } from "../../src/kit/fault.ts";
import { systemIds } from "../../src/kit/ids.ts";

test("a batch that is refused holds no worker for its earlier events", () => {
  const record = {
    environmentId: "env_1",
    definition: definitionOf({ id: "fn", triggers: [{ event: "good" }] }),
    status: "active",
    version: 1,
    createdAt: 1,
    updatedAt: 1,
  } as const;
  const definitions = {
    version: 1,
    functions: new Map([["denied", record]]),
    triggersOf: (name: string) => (name === "good" ? [{ record, event: "good" }] : []),
  } as unknown as Definitions;
  let held = 0;
  const dispatcher = {
    reserve() {
      held++;
      return { lease: { hash: "h", workerId: "w", until: 1 }, deliver() {}, drop: () => void held-- };
    },
  };
  const draft = (name: string) => ({
    ...{ name, version: 1, value: {}, data: "{}", metadata: null, metadataValue: null, idempotencyKey: null },
    ...(name === "denied" && { startRefused: new Fault("permission_denied", "no") }),
  });
  const drafts = [draft("good"), draft("denied")];
  const unit = {
    origin: { environmentId: "env_1", source: "api", runId: undefined },
    drafts,
    judged: drafts.map((_, at) => ({ id: `evt_${at}`, at: undefined, verdicts: undefined })),
    judgedBy: definitions,
    target: undefined,
    undelayed: false,
  };
  const clock = testClock();
  const deps = { ids: systemIds(clock), dispatcher } as unknown as Parameters<typeof prepareUnit>[2];
  const prepare = (count: number) => () =>
    prepareUnit({ ...unit, drafts: drafts.slice(0, count) }, definitions, deps, clock.now());
  expect(prepare(2)).toThrow("no");
  expect(held).toBe(0);
  expect(prepare(1)()).toHaveLength(1);
  expect(held).toBe(1);
});
