import type { Session } from "../../../store/store.ts";
import * as rows from "./rows.ts";
import type { AuditHead } from "./rules.ts";
import * as rules from "./rules.ts";
import type { AuditKeys } from "./verify.ts";

/** Signs the heads of chains, and tells which stored head cannot be trusted. */
export class ChainHeads {
  readonly #keys: AuditKeys;
  /** How far each chain had come when this node last saw it: a head that is older was put back. */
  readonly #seen = new Map<string, number>();

  constructor(keys: AuditKeys) {
    this.#keys = keys;
  }

  wasSeen(orgId: string): boolean {
    return this.#seen.has(orgId);
  }

  seenTo(orgId: string): number {
    return this.#seen.get(orgId) ?? 0;
  }

  noteSeen({ orgId, sequence }: AuditHead): void {
    this.#seen.set(orgId, sequence);
  }

  signed(head: Omit<AuditHead, "signature" | "keyId">): AuditHead {
    const { id, secret } = this.#keys.current();
    const whole = { ...head, keyId: id };
    return { ...whole, signature: rules.headSignature(secret, whole) };
  }

  /** What is wrong with a head, by its signature and by what this node saw. */
  whyNot(head: AuditHead): string | undefined {
    const secret = this.#keys.find(head.keyId);
    if (secret === undefined) return "the head is signed with a key that this installation never had";
    if (!rules.sameText(rules.headSignature(secret, head), head.signature))
      return "the head is not what was signed";
    if (head.sequence < this.seenTo(head.orgId)) return "an older head was put back";
    return undefined;
  }

  /** The same, and by the rows: `suspect` compares them even where nothing else asks for it. */
  async whyDistrusted(session: Session, head: AuditHead, suspect: boolean): Promise<string | undefined> {
    const reason = this.whyNot(head);
    if (reason !== undefined || !(suspect || head.sequence === 0)) return reason;
    const last = await rows.lastRow(session, head.orgId);
    return last && last.sequence > head.sequence ? "an older head was put back" : undefined;
  }
}
