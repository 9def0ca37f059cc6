/** A defect that is put into the source of a server as it is loaded, to see that whoever judges its readers sees it. */
export interface SourcePlant {
  /** From the root of the repository. */
  file: string;
  /** Stands there once. */
  find: string;
  plant: string;
}

export const readerPlants = {
  /** What comes first after a resume is left out. */
  gap: {
    file: "src/domain/realtime/pubsub/catch-up.ts",
    find: "let reached = after;",
    plant: "let reached = after + 1;",
  },
  /** A resume begins before what was asked for. */
  repeat: {
    file: "src/domain/realtime/pubsub/catch-up.ts",
    find: "let reached = after;",
    plant: "let reached = Math.max(0, after - 40);",
  },
  /** Of some deliveries the first acknowledgement is answered and forgotten: they are given once more. */
  forgotten: {
    file: "src/domain/realtime/groups/ack.ts",
    find: 'if (ack.verdict !== "nak") changes.end(row);',
    plant: 'if (ack.verdict !== "nak") { if (row.position % 40 > 0 || row.attempt > 1) changes.end(row); }',
  },
  /** A group passes over some of what it should hand out. */
  skipped: {
    file: "src/domain/realtime/groups/look-ahead.ts",
    find: "if (delivery) {",
    plant: "if (delivery && entry.position % 40 > 0) {",
  },
} as const satisfies Record<string, SourcePlant>;

export type ReaderPlant = keyof typeof readerPlants;

/** Tells the preload which are meant. */
export const plantsVariable = "READER_PLANTS";
