import { first } from "./0001_first.ts";
import { cluster } from "./0002_cluster.ts";
import { roomForEnds } from "./0003_room_for_ends.ts";
import { waits } from "./0004_waits.ts";
import { steering } from "./0005_steering.ts";
import { starts } from "./0006_starts.ts";
import { push } from "./0008_push.ts";
import { lanes } from "./0009_lanes.ts";
import { explain } from "./0010_explain.ts";
import { access } from "./0011_access.ts";
import { sessions } from "./0012_sessions.ts";
import { tenancy } from "./0013_tenancy.ts";
import { platform } from "./0014_platform.ts";
import { audit } from "./0015_audit.ts";
import { purging } from "./0017_purging.ts";
import { topics } from "./0018_topics.ts";
import { groups } from "./0019_groups.ts";
import { outbox } from "./0020_outbox.ts";
import { credentials } from "./0021_credentials.ts";
import { endpointKeys } from "./0024_endpoint_keys.ts";
import { shares } from "./0026_shares.ts";
import { loginAttempts } from "./0027_login_attempts.ts";
import { eventLists } from "./0028_event_lists.ts";
import { streams } from "./0029_streams.ts";
import { projections } from "./0030_projections.ts";
import { sqlProjections } from "./0031_sql.ts";
import { kvAndSecrets } from "./0032_kv_and_secrets.ts";
import { schemas } from "./0033_schemas.ts";
import { webhooks } from "./0034_webhooks.ts";
import { webhookEndpoints } from "./0035_webhook_endpoints.ts";
import { agentTools } from "./0036_agent_tools.ts";
import { exports } from "./0037_exports.ts";
import { flow } from "./0038_flow.ts";
import { undo } from "./0039_undo.ts";
import { flowControl } from "./0040_flow_control.ts";
import { gates } from "./0041_gates.ts";
import { webhookKeys } from "./0042_webhook_keys.ts";
import { kvRevisions } from "./0043_kv_revisions.ts";
import { causality } from "./0044_causality.ts";
import { repairs } from "./0045_repairs.ts";
import { invokedFunctions } from "./0046_invoked_functions.ts";
import { checks } from "./0047_checks.ts";
import { stateWaits } from "./0048_state_waits.ts";
import { batches } from "./0049_batches.ts";
import { finding } from "./0050_finding.ts";
import { replays } from "./0051_replays.ts";
import { kvByRevision } from "./0052_kv_by_revision.ts";
import { deliveryLists } from "./0054_delivery_lists.ts";
import { primaryServer } from "./0056_primary_server.ts";
import { oneWay } from "./0058_one_way.ts";
import { room } from "./0062_room.ts";
import { attributeDeletion } from "./0063_attribute_deletion.ts";
import { sessionsListed } from "./0064_sessions_listed.ts";
import { lettersListed } from "./0065_letters_listed.ts";

/** In order; a landed one is never edited. */
export const migrations = [
  first,
  cluster,
  roomForEnds,
  waits,
  steering,
  starts,
  push,
  lanes,
  explain,
  access,
  sessions,
  tenancy,
  platform,
  audit,
  purging,
  topics,
  groups,
  outbox,
  credentials,
  endpointKeys,
  shares,
  loginAttempts,
  eventLists,
  streams,
  projections,
  sqlProjections,
  kvAndSecrets,
  schemas,
  webhooks,
  webhookEndpoints,
  agentTools,
  exports,
  flow,
  undo,
  flowControl,
  gates,
  webhookKeys,
  kvRevisions,
  causality,
  repairs,
  invokedFunctions,
  checks,
  stateWaits,
  batches,
  finding,
  replays,
  kvByRevision,
  deliveryLists,
  primaryServer,
  oneWay,
  room,
  attributeDeletion,
  sessionsListed,
  lettersListed,
];
