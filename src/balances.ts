import { debounceCheck } from "./domain/debounce/balance.ts";
import { type IntegrityCheck, logCheck } from "./domain/integrity/service.ts";
import { runChecks } from "./domain/runs/balance.ts";
import { scheduleChecks } from "./domain/schedules/balance.ts";
import type { Clock } from "./kit/clock.ts";
import type { Store } from "./store/store.ts";

/** What the engine's capabilities say must balance in every environment. */
export const balances = (store: Store, clock: Pick<Clock, "now">): IntegrityCheck[] => [
  logCheck(store),
  ...runChecks(store, clock),
  debounceCheck(store, clock),
  ...scheduleChecks(store, clock),
];
