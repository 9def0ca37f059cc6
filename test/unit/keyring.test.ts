import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtemp, readFile, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { seal, unseal } from "../../src/domain/access/keyring/rules.ts";
import { type Keyring, openKeyring } from "../../src/domain/access/keyring/service.ts";
import { type TestClock, testClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { removeFolder } from "../support/process.ts";

const hexKey = (digits: string) => digits.repeat(64 / digits.length);
const day = 24 * 60 * 60 * 1000;

describe("keyring", () => {
  let folder: string;
  let store: Store;
  let clock: TestClock;
  let count = 0;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "svc-keyring-"));
    clock = testClock();
  });
  afterAll(() => removeFolder(folder));

  const fresh = async () => {
    store = await openStore({ clock, log: silentLog, file: join(folder, `${++count}.db`) });
  };
  const open = (
    masterKey?: string,
    given: { jwt_secret?: string; signing_key?: string } = {},
    warn: (event: string) => void = () => {},
  ): Promise<Keyring> =>
    openKeyring({
      store,
      clock,
      ids: systemIds(clock),
      log: { ...silentLog, warn },
      masterKey,
      masterFile: join(folder, `${count}.key`),
      given,
    });
  const rotate = async (ring: Keyring, kind: "jwt_secret" | "master_key", value: string) => {
    await store.write((session) => ring.rotate(session, kind, value, "usr_1"));
    await ring.refresh();
  };

  test("the first start writes a key file for its owner alone; the next ones read it", async () => {
    await fresh();
    const first = await open();
    const path = join(folder, `${count}.key`);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect((await readFile(path, "utf8")).trim()).toMatch(/^[0-9a-f]{64}$/);
    const second = await open();
    expect(second.current("jwt_secret")).toEqual(first.current("jwt_secret"));
    expect(first.current("jwt_secret").secret).not.toBe(first.current("signing_key").secret);
    await store.close();
  });

  test("a rotated master key goes into the file; who still has the old one finds the way for a day", async () => {
    await fresh();
    const old = hexKey("ab");
    const ring = await open(old);
    const jwt = ring.current("jwt_secret");
    await rotate(ring, "master_key", hexKey("cd"));
    await rotate(ring, "master_key", hexKey("ef"));
    const told: string[] = [];
    const late = await open(old, {}, (event) => told.push(event));
    expect(late.current("jwt_secret")).toEqual(jwt);
    expect(told).toContain("keyring.master_outdated");
    await clock.advance(day + 1);
    await store.write((session) => ring.purge(session));
    await expect(open(old)).rejects.toThrow("too old");
    expect((await open(hexKey("ef"))).current("jwt_secret")).toEqual(jwt);
    await expect(open(hexKey("01"))).rejects.toThrow("not the one");
    await store.close();
  });

  test("what a node of the version before left under an older master key is made anew, and nothing else is lost", async () => {
    await fresh();
    const ring = await open(hexKey("ab"));
    const own = ring.current("platform_jwt_secret");
    const [left] = await store.all(sql`SELECT sealed FROM keyring WHERE kind = 'platform_jwt_secret'`);
    await rotate(ring, "master_key", hexKey("cd"));
    // It did not know the kind: the row is as it was.
    await store.write((session) =>
      session.run(
        sql`UPDATE keyring SET sealed = ${left!.sealed as string} WHERE kind = 'platform_jwt_secret'`,
      ),
    );
    for (let look = 0; look < 3; look++) await ring.refresh();
    expect(ring.current("platform_jwt_secret")).toEqual(own);
    const later = await open(hexKey("cd"));
    expect(later.current("platform_jwt_secret").secret).not.toBe(own.secret);
    expect(later.current("jwt_secret")).toEqual(ring.current("jwt_secret"));
    await ring.refresh();
    expect(ring.current("platform_jwt_secret")).toEqual(later.current("platform_jwt_secret"));
    await store.close();
  });

  test("what settings bring is taken once; rotated since, it is outdated and said to be", async () => {
    await fresh();
    const mine = "a".repeat(40);
    const key = hexKey("ab");
    const ring = await open(key, { jwt_secret: mine });
    expect(ring.current("jwt_secret").secret).toBe(mine);
    await rotate(ring, "jwt_secret", "b".repeat(40));
    const told: string[] = [];
    const again = await open(key, { jwt_secret: mine }, (event) => told.push(event));
    expect(again.current("jwt_secret").secret).toBe("b".repeat(40));
    expect(told).toEqual(["keyring.setting_outdated"]);
    const changed = await open(key, { jwt_secret: "c".repeat(40) });
    expect(changed.current("jwt_secret").secret).toBe("c".repeat(40));
    await store.close();
  });

  test("what an older secret signed is believed for a day", async () => {
    await fresh();
    const ring = await open(hexKey("ab"));
    const { id, secret } = ring.current("jwt_secret");
    await rotate(ring, "jwt_secret", "d".repeat(40));
    expect(ring.find("jwt_secret", id)).toBe(secret);
    await clock.advance(day + 1);
    expect(ring.find("jwt_secret", id)).toBeUndefined();
    await store.close();
  });
});

describe("sealing", () => {
  const nonce = new Uint8Array(12).fill(7);
  test("opens with the same key at the same place, and nowhere else", () => {
    const sealed = seal(hexKey("ab"), 3, "secrets/1", "hush", nonce);
    expect(sealed).toStartWith("3.");
    expect(sealed).not.toContain("hush");
    expect(unseal(hexKey("ab"), "secrets/1", sealed)).toBe("hush");
    expect(unseal(hexKey("ab"), "secrets/2", sealed)).toBeUndefined();
    expect(unseal(hexKey("cd"), "secrets/1", sealed)).toBeUndefined();
  });

  test("a changed letter anywhere opens nothing", () => {
    const sealed = seal(hexKey("ab"), 1, "p", "x".repeat(50), nonce);
    for (let place = 2; place < sealed.length; place++) {
      const other = sealed[place] === "A" ? "B" : "A";
      const changed = sealed.slice(0, place) + other + sealed.slice(place + 1);
      // The last letter of base64url may carry bits that mean nothing.
      if (
        Buffer.from(changed.split(".")[2] ?? "", "base64url").equals(
          Buffer.from(sealed.split(".")[2]!, "base64url"),
        ) &&
        changed.split(".")[1] === sealed.split(".")[1]
      )
        continue;
      expect(unseal(hexKey("ab"), "p", changed)).toBeUndefined();
    }
    for (const text of ["", "1", "1.a", "1..", "x.y.z"])
      expect(unseal(hexKey("ab"), "p", text)).toBeUndefined();
  });
});
