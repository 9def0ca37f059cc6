import { expect, test } from "bun:test";
import { projectionFrameMs } from "../../src/domain/state/projections/limits.ts";
import { openNotices } from "../../src/domain/state/projections/notices.ts";
import { openSignals } from "../../src/domain/state/projections/runners/signals.ts";
import { testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import type { Store } from "../../src/store/store.ts";
import { until } from "../support/until.ts";

const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

test("looks for frames that take longer than their pace do not pile up", async () => {
  const clock = testClock();
  const looks: (() => void)[] = [];
  // A projection that is gone by the time it is read.
  const all = () => new Promise<[]>((resolve) => looks.push(() => resolve([])));
  const notices = openNotices({
    ...{ store: { all } as unknown as Store, clock, log: silentLog, signals: openSignals() },
    frames: { wants: () => true, publish: () => {} },
    moved: { publish: () => {}, listen: () => () => {} } as never,
    hasOthers: () => false,
  });
  const move = async () => {
    notices.changed({ key: { environment_id: "env_a", name: "p" }, kind: "move" });
    await clock.advance(projectionFrameMs);
  };
  for (let count = 0; count < 20; count++) await move();
  expect(looks).toHaveLength(1);
  looks[0]!();
  await until(() => looks.length > 1, { about: "the look for what came meanwhile" });
  looks[1]!();
  await settled();
  expect(looks).toHaveLength(2);
  await move();
  await until(() => looks.length > 2, { about: "the look for a later move" });
});
