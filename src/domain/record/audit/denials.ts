import type { Clock } from "../../../kit/clock.ts";
import { auditCallersKeptMax, auditDenialsMax } from "./limits.ts";
import type { AuditEntry } from "./rules.ts";

const windowMs = 60_000;

/** Records the first denials of each kind in a minute: a caller in a loop would otherwise fill the audit. */
export class DenialCap {
  readonly #clock: Pick<Clock, "elapsed">;
  readonly #kinds = new Map<string, { until: number; count: number }>();

  constructor(clock: Pick<Clock, "elapsed">) {
    this.#clock = clock;
  }

  /**
   * How many denials like this one were left out in the minute before; undefined when this one is left out
   * too.
   */
  leftOutBefore(entry: AuditEntry): number | undefined {
    const kind = `${entry.orgId}\n${entry.callerId}\n${entry.operation}\n${entry.rule}`;
    const now = this.#clock.elapsed();
    const known = this.#kinds.get(kind);
    if (known && known.until > now) {
      known.count++;
      return known.count > auditDenialsMax ? undefined : 0;
    }
    this.#kinds.delete(kind);
    if (this.#kinds.size >= auditCallersKeptMax) this.#kinds.delete(this.#kinds.keys().next().value!);
    this.#kinds.set(kind, { until: now + windowMs, count: 1 });
    return known ? Math.max(0, known.count - auditDenialsMax) : 0;
  }
}
