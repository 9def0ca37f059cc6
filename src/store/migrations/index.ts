import type { Migration } from "../migrate.ts";
import { debounceKinds } from "./0066_debounce_kinds.ts";
import { delayedSenders } from "./0067_delayed_senders.ts";
import { keptSteps } from "./0068_kept_steps.ts";
import { goodbyes } from "./0069_goodbyes.ts";
import { ledgers } from "./0070_ledgers.ts";
import { seenBySteps } from "./0071_seen_by_steps.ts";
import { runLogs } from "./0072_run_logs.ts";
import { installation } from "./0073_installation.ts";
import { deployments } from "./0074_deployments.ts";
import { redactions } from "./0075_redactions.ts";
import { issuers } from "./0076_issuers.ts";
import { runSignals } from "./0077_run_signals.ts";
import { runOutputs } from "./0078_run_outputs.ts";
import { alerts } from "./0079_alerts.ts";
import { pinnedRuns } from "./0080_pinned_runs.ts";
import { usageDays } from "./0081_usage_days.ts";
import { alertTargets } from "./0082_alert_targets.ts";

/** What came after 0.40.0, in order; a landed one is never edited. The rows of `tables/` have it, too. */
export const migrations: readonly Migration[] = [
  debounceKinds,
  delayedSenders,
  keptSteps,
  goodbyes,
  ledgers,
  seenBySteps,
  runLogs,
  installation,
  deployments,
  redactions,
  issuers,
  runSignals,
  runOutputs,
  alerts,
  pinnedRuns,
  usageDays,
  alertTargets,
];
