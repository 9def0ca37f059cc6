import { expect, test } from "bun:test";
import { systemClock } from "../../src/kit/clock.ts";
import type { Session, Store } from "../../src/store/store.ts";
import { isNight } from "../support/night.ts";
import { engines } from "../support/server.ts";
import { raceMatrix, suite } from "./races.suite.ts";
import { uncovered } from "./races-judge.ts";

const silent = () => {};

test("a second after a right is taken away nothing works by it, whatever was under way: a sample", async () => {
  const { attempts, breaches } = await suite.run({ seed: 12, long: false, engines, log: silent });
  expect(breaches).toEqual([]);
  expect(attempts).toBeGreaterThan(0);
}, 120_000);

const { sleep } = systemClock();
/** Between the answer to who asks and what is written for them. */
const heldUpMs = 15;

/** Who makes something does not look whether its parent is still there: the mistake that the locks are for. */
const trusting = (store: Store): Store => ({
  ...store,
  async write(work) {
    await sleep(heldUpMs);
    return store.write((session) =>
      work({
        ...session,
        one: ((query) => {
          const text = query.strings.join("?");
          const isLook = /^SELECT id FROM (orgs|environments|projects) WHERE id = /.test(text);
          return isLook ? Promise.resolve({ id: query.values[0] }) : session.one(query);
        }) as Session["one"],
      }),
    );
  },
});

/** What looks at a parent alone: whoever carries a role is stopped by that too when the whole org goes. */
const underDeleted = (revoker: string, minter: string) =>
  /^delete the (environment|project)$/.test(revoker) &&
  /^make a key( by a user| by impersonation)?$/.test(minter);

// Its guard is one for both engines: by day on the quicker one.
test.each(isNight ? engines : (["libsql"] as const))(
  "who trusts on %s that a parent is still there is found out",
  async (engine) => {
    const options = { seed: 1, engines: [engine], only: underDeleted, most: 32, log: silent };
    const planted = await raceMatrix({ ...options, aroundStore: trusting });
    expect(planted.breaches.join("\n")).toMatch(/rows of api_keys live under an environment that is gone/);
  },
  120_000,
);

test("an operation of access that is in no list is told", () => {
  const name = "users.bless";
  expect(uncovered([{ name } as never])).toContain(`${name} is neither raced nor set apart`);
});
