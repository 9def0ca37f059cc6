import { expect, test } from "bun:test";
import type { Session, Store } from "../../src/store/store.ts";
import { engines } from "../support/server.ts";
import { raceMatrix, suite } from "./races.suite.ts";
import { uncovered } from "./races-judge.ts";

const silent = () => {};

test("a second after a right is taken away nothing works by it, whatever was under way: a sample", async () => {
  const { attempts, breaches } = await suite.run({ seed: 12, long: false, engines, log: silent });
  expect(breaches).toEqual([]);
  expect(attempts).toBeGreaterThan(0);
}, 120_000);

/** Who makes something does not look whether its parent is still there: the mistake that the locks are for. */
const trusting = (store: Store): Store => ({
  ...store,
  write: (work) =>
    store.write((session) =>
      work({
        ...session,
        one: ((query) => {
          const text = query.strings.join("?");
          const isLook = /^SELECT id FROM (orgs|environments|projects) WHERE id = /.test(text);
          return isLook ? Promise.resolve({ id: query.values[0] }) : session.one(query);
        }) as Session["one"],
      }),
    ),
});

/** Pairs in which the second one looks at a parent that the first one deletes. */
const underDeleted = (revoker: string, minter: string) =>
  /^delete the (environment|project|tenant)$/.test(revoker) &&
  /^make (a key|a user|a user by impersonation|a key by impersonation)$/.test(minter);

test.each(engines)(
  "who trusts on %s that a parent is still there is found out",
  async (engine) => {
    const options = { seed: 1, engines: [engine], only: underDeleted, log: silent };
    const planted = await raceMatrix({ ...options, aroundStore: trusting });
    expect(planted.breaches.join("\n")).toMatch(/live under (an org|an environment) that is gone/);
  },
  120_000,
);

test("an operation of access that is in no list is told", () => {
  const name = "users.bless";
  expect(uncovered([{ name } as never])).toContain(`${name} is neither raced nor set apart`);
});
