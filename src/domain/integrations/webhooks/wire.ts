import {
  WebhookDeliverySchema,
  WebhookSourceSchema,
  type WebhookVerifyConfig,
} from "../../../gen/svc/v1/webhook_pb.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { fieldsFor } from "../../../kit/message-shape.ts";
import { asSent } from "../../../kit/request.ts";
import { timestampOf } from "../../../kit/wkt.ts";
import type { Received } from "./ingest/service.ts";
import type { DeliveryList, DeliveryRow, WebhookFlow } from "./kept-deliveries.ts";
import { listedBodyCharsMax } from "./limits.ts";
import type { VerifyConfig } from "./rules.ts";
import type { ShownSource, SourceRow } from "./sources.ts";
import type { Trial } from "./trial.ts";
import { uncovered } from "./verify.ts";

export const fromConfig = (config: WebhookVerifyConfig | undefined): VerifyConfig | undefined =>
  config && asSent(config);

const ofSource = fieldsFor(WebhookSourceSchema);
const ofDelivery = fieldsFor(WebhookDeliverySchema);

export const toSource = ({ row, token }: ShownSource) => ({
  ...ofSource(row, "id name event_prefix verify_header verify_algorithm source_type created_at updated_at"),
  metadata: JSON.parse(row.metadata),
  ...{ verifySecretSet: row.sealed !== null, verifySecretPrevSet: row.prev_sealed !== null },
  ...(row.prev_expires_at !== null && { verifySecretPrevExpiresAt: timestampOf(row.prev_expires_at) }),
  ingestTokenPrefix: row.token_prefix,
  ...(token !== undefined && { ingestToken: token }),
  ...(row.verify_config !== null && configShown(JSON.parse(row.verify_config))),
});

const configShown = (verifyConfig: VerifyConfig) => {
  const { id, name } = uncovered(verifyConfig);
  const said = (what: string, path: string) =>
    `the signature does not cover ${what}, at ${path}: a request that is signed as one before is its repeat for 72 hours`;
  const notices = [
    ...(name ? [said("the event's name", verifyConfig.eventNamePath)] : []),
    ...(id ? [said("the id by which repeats are known", verifyConfig.dedupIdPath)] : []),
  ];
  return { verifyConfig, ...(notices.length > 0 && { notices }) };
};

export const toSources = (page: { sources: SourceRow[]; totalCount: number }) => ({
  sources: page.sources.map((row) => toSource({ row })),
  totalCount: page.totalCount,
});

export const toDelivery = (row: DeliveryRow) => ({
  ...ofDelivery(row, "id source_id external_id status event_id error created_at request_body signature_key"),
  ...ofDelivery(row, "redelivered_from event_name"),
  requestHeaders: JSON.parse(row.request_headers),
  ...{ duplicate: row.is_repeat === 1, requestBodyTruncated: row.body_whole === 0 },
});

/** A list shows the beginning of each body: a page of whole ones would be too large for any client. */
export const toListed = (row: DeliveryRow) => {
  const isCut = row.request_body.length > listedBodyCharsMax;
  return {
    ...toDelivery(row),
    ...(isCut && {
      requestBody: row.request_body.slice(0, listedBodyCharsMax).toWellFormed(),
      requestBodyTruncated: true,
    }),
  };
};

export const toDeliveries = (page: DeliveryList) => ({
  deliveries: page.deliveries.map(toListed),
  nextCursor: page.nextCursor ?? "",
  ...{ totalCount: page.totalCount, totalCountCapped: page.isTotalCut },
  ...{ truncated: page.scanned > 0, scanned: page.scanned },
});

export const toTrial = (trial: Trial) => ({
  verified: trial.verified,
  signingString: trial.signingString,
  computedSignature: trial.computedSignature,
  presentedSignatures: trial.presentedSignatures,
  resolvedTimestamp: trial.timestamp,
  resolvedEventName: trial.eventName,
  resolvedDedupId: trial.dedupId,
  error: trial.error,
});

/** What a provider is answered. */
export const receivedJson = ({ eventId, deliveryId, isRepeat, challenge }: Received) => ({
  status: "accepted",
  event_id: eventId,
  delivery_id: deliveryId,
  ...(isRepeat && { duplicate: true }),
  ...(challenge !== undefined && { challenge }),
});

export const flowJson = ({ sources, edges }: WebhookFlow) => ({
  sources: sources.map(({ row, counts, latest }) => ({
    id: row.id,
    name: row.name,
    event_prefix: row.event_prefix,
    source_type: row.source_type,
    delivery_counts: counts,
    ...(latest && { latest_delivery_at: rfc3339(latest.at), latest_delivery_status: latest.status }),
  })),
  edges,
});
