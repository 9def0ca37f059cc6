import type { Chance } from "../support/chance.ts";
import type { SimulatedNode } from "./node.ts";
import type { ProcessTime, Time } from "./time.ts";

/** How long a lease lasts in simulated worlds. */
export const leaseMs = 4_000;

export interface Targets {
  trouble: Chance;
  nodes: SimulatedNode[];
  workers: ProcessTime[];
  troubles: { before: number; after: number; hintLoss: number };
  addNode: () => void;
  addWorker: () => void;
  time: Time;
}

/** Does something bad; answers what. */
export function strike(targets: Targets): [string, (() => void)?] {
  const { trouble, nodes, workers, troubles, addNode, addWorker, time } = targets;
  const living = workers.filter((worker) => worker.alive());
  switch (trouble.between(0, 7)) {
    case 0: {
      if (living.length === 0) return ["nobody to kill"];
      trouble.oneOf(living).kill();
      time.after(trouble.between(0, 3_000), addWorker);
      return ["a worker dies"];
    }
    case 1: {
      if (living.length === 0) return ["nobody to freeze"];
      const ms = trouble.between(100, 3 * leaseMs);
      trouble.oneOf(living).freeze(ms);
      return [`a worker stands still for ${ms} ms`];
    }
    case 2: {
      if (nodes.length < 2) return ["the last node stays"];
      const node = trouble.oneOf(nodes);
      node.process.kill();
      time.after(trouble.between(0, 3_000), addNode);
      return [`${node.id} dies`];
    }
    case 3: {
      const ms = trouble.between(100, 3 * leaseMs);
      const node = trouble.oneOf(nodes);
      node.process.freeze(ms);
      return [`${node.id} stands still for ${ms} ms`];
    }
    case 4: {
      const node = trouble.oneOf(nodes);
      const ms = trouble.between(-200, 200);
      node.process.setAhead(ms);
      return [`${node.id}'s clock is ${ms} ms ahead`];
    }
    case 5: {
      troubles.before = trouble.oneOf([0, 0.05, 0.3]);
      troubles.after = trouble.oneOf([0, 0.05, 0.2]);
      time.after(trouble.between(200, 4_000), () => Object.assign(troubles, { before: 0, after: 0 }));
      return [`the store fails before ${troubles.before} and after ${troubles.after}`];
    }
    case 6: {
      troubles.hintLoss = trouble.oneOf([0, 0.5, 1]);
      return [`hints get lost: ${troubles.hintLoss}`];
    }
    default:
      return ["nothing"];
  }
}
