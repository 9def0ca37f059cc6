import type { EngineName } from "../support/server.ts";

/** One kind of attack, generated: what is tried, how often, and what got through. */
export interface AttackSuite {
  name: string;
  /** One line: who does what to whom. */
  about: string;
  run(options: AttackOptions): Promise<AttackResult>;
}

export interface AttackOptions {
  /** The same seed makes the same attempts. */
  seed: number;
  /** Everything; without it what CI has the time for. */
  long: boolean;
  engines: readonly EngineName[];
  log(line: string): void;
}

export interface AttackResult {
  /** `214 pairs x 7 offsets`: what the attempts were made of. */
  size: string;
  attempts: number;
  /** A sentence for each attempt that got through: what was done, what was expected, what was seen. */
  breaches: string[];
}
