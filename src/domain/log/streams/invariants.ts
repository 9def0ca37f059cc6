import { integrityEnvironmentsMax } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";

/** Streams of one look, and the newest versions of each that are compared: an index has all that is read. */
const streamsAtOnce = 200;
const versionsCompared = 50;

interface StreamLook {
  entity_id: string;
  version: number;
  at: number;
  /** The version of its last event; null when it has none. */
  last: number | null;
  /** The lowest version of its newest events. */
  lowest: number | null;
}

const ofStream = sql.raw("v.environment_id = s.environment_id AND v.entity_id = s.entity_id");

/** Walks over the streams of an environment: the version of each is compared with its newest events. */
export function streamsCheck(store: Pick<Store, "all">): IntegrityCheck {
  /** The last stream that was looked at, by environment. */
  const walks = new Map<string, string>();
  const isWell = ({ version, last, lowest }: StreamLook) =>
    last === version && lowest === Math.max(1, version - versionsCompared + 1);
  return {
    name: "streams.heads",
    about: `Streams whose version is not that of their last event, or with a gap in their newest ${versionsCompared}: another ${streamsAtOnce} streams each time.`,
    async run(environmentId) {
      const after = walks.get(environmentId) ?? "";
      const looked = await store.all<StreamLook>(sql`SELECT s.entity_id, s.version, s.updated_at AS at,
          (SELECT max(v.entity_version) FROM events v WHERE ${ofStream}) AS last,
          (SELECT min(n.entity_version) FROM (SELECT v.entity_version FROM events v WHERE ${ofStream}
            ORDER BY v.entity_version DESC LIMIT ${versionsCompared}) n) AS lowest
        FROM (SELECT environment_id, entity_id, version, updated_at FROM streams
          WHERE environment_id = ${environmentId} AND entity_id > ${after}
          ORDER BY entity_id LIMIT ${streamsAtOnce}) s ORDER BY s.entity_id`);
      const broken = looked.filter((stream) => !isWell(stream));
      walks.delete(environmentId);
      if (walks.size >= integrityEnvironmentsMax) walks.delete(walks.keys().next().value!);
      // It stays where something is broken, so that this is seen until it is put right.
      if (broken.length > 0) walks.set(environmentId, after);
      else if (looked.length === streamsAtOnce) walks.set(environmentId, looked.at(-1)!.entity_id);
      return violationsOf(broken.map(({ entity_id, ...rest }) => ({ id: entity_id, ...rest })));
    },
  };
}
