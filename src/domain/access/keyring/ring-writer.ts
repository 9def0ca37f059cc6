import type { Clock } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import type { Session } from "../../../store/store.ts";
import { type HeldMaster, newest, openMasters, openRing, places, proof } from "./ring.ts";
import * as rows from "./rows.ts";
import type { RingKind } from "./rules.ts";
import * as rules from "./rules.ts";

/** Seals again whatever else is sealed, in the transaction of a new master key. */
export type Reseal = (session: Session, again: (place: string, sealed: string) => string) => Promise<void>;

/** Writes the rows of the keyring; each change holds all rows until its transaction ends. */
export class RingWriter {
  readonly #clock: Clock;
  readonly #ids: Ids;
  readonly #reseal: Reseal | undefined;

  constructor(deps: { clock: Clock; ids: Ids; reseal?: Reseal | undefined }) {
    this.#clock = deps.clock;
    this.#ids = deps.ids;
    this.#reseal = deps.reseal;
  }

  nonce(): Uint8Array {
    return Buffer.from(this.#ids.secret(rules.nonceBytes), "hex");
  }

  /** Does nothing when another node was first. */
  async addFirstMaster(session: Session, key: string): Promise<void> {
    await rows.insertRow(session, {
      kind: "master",
      version: 1,
      sealed: rules.seal(key, 1, places.master(1), proof, this.nonce()),
      fingerprint: rules.fingerprintOf(key),
      created_at: this.#clock.now(),
      createdBy: "system",
    });
  }

  async addSecret(
    session: Session,
    held: HeldMaster,
    { kind, secret, createdBy }: { kind: RingKind; secret: string; createdBy: string },
  ): Promise<void> {
    const list = await rows.holdRows(session);
    const { masters, version: master } = openMasters(list, held);
    const fingerprint = rules.fingerprintOf(secret);
    if (newest(list, kind)?.fingerprint === fingerprint) return;
    if (list.some((row) => row.kind === kind && row.fingerprint === fingerprint))
      throw new Fault("already_exists", "new_value: already used before", { field: "new_value" });
    const version = (newest(list, kind)?.version ?? 0) + 1;
    const now = this.#clock.now();
    await rows.insertRow(session, {
      kind,
      version,
      sealed: rules.seal(masters.get(master)!, master, places.secret(kind, version), secret, this.nonce()),
      fingerprint,
      created_at: now,
      createdBy,
    });
    await rows.retireBefore(session, kind, version, now);
  }

  /**
   * Seals everything again in the same transaction. `known` are the master keys that this node had opened
   * before.
   */
  async addMaster(
    session: Session,
    held: HeldMaster,
    known: ReadonlyMap<number, string>,
    { key, createdBy }: { key: string; createdBy: string },
  ): Promise<void> {
    const list = await rows.holdRows(session);
    const before = openRing(list, held, known);
    const fingerprint = rules.fingerprintOf(key);
    if (list.some((row) => row.kind === "master" && row.fingerprint === fingerprint))
      throw new Fault("already_exists", "new_value: already used as a master key", { field: "new_value" });
    const version = before.version + 1;
    const now = this.#clock.now();
    const put = (kind: string, at: number, sealed: string) =>
      rows.insertRow(session, { kind, version: at, sealed, fingerprint, created_at: now, createdBy });
    const sealed = (place: string, text: string) => rules.seal(key, version, place, text, this.nonce());
    const old = before.masters.get(before.version)!;
    const wrapped = rules.seal(old, before.version, places.next(before.version), key, this.nonce());
    await put("master", version, sealed(places.master(version), proof));
    await put("master_next", before.version, wrapped);
    await rows.retireBefore(session, "master_next", version, now);
    for (const [kind, secrets] of before.secrets)
      for (const { version: own, secret } of secrets)
        await rows.resealRow(session, { kind, version: own }, sealed(places.secret(kind, own), secret));
    await this.#reseal?.(session, (place, text) => {
      const master = before.masters.get(rules.sealVersion(text)) ?? known.get(rules.sealVersion(text));
      const opened = master && rules.unseal(master, place, text);
      if (opened === undefined) throw rules.sealedElsewhere();
      return sealed(place, opened);
    });
  }
}
