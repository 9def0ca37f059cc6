import type { ASTNode } from "@marcbachmann/cel-js";
import {
  CelError,
  durationCharsMax,
  lengthOf,
  macroDepthMax,
  macros,
  methodMeters,
  nodesAnItem,
  nodesOf,
  operandMeters,
  patternOf,
  receiverMeters,
  tooLong,
} from "./bounds.ts";

/**
 * Writes the expression again, with a meter around every operand whose size decides the cost, and with
 * `matches` on RE2: that runs in linear time, where JavaScript's own expressions backtrack. The text is
 * unchanged when neither is needed. Throws CelError for an expression whose cost cannot be bounded.
 */
export function rewrite(ast: ASTNode): { text: string; changed: boolean } {
  const rewriter = new Rewriter();
  const text = rewriter.write(ast, 0);
  return { text, changed: rewriter.changed };
}

/** Writes nodes; `depth` counts the macros that a node stands in. */
class Rewriter {
  changed = false;
  #bindings = 0;

  #meter(name: string, node: ASTNode, depth: number): string {
    if (node.op === "value") return this.write(node, depth);
    this.changed = true;
    return `${name}(${this.write(node, depth)})`;
  }

  #matches(text: ASTNode, pattern: ASTNode | undefined, depth: number): string {
    if (pattern?.op !== "value" || typeof pattern.args !== "string")
      throw new CelError("matches(): the pattern must be a literal text");
    patternOf(pattern.args);
    this.changed = true;
    return `svc_matches(${this.write(text, depth)}, ${this.write(pattern, depth)})`;
  }

  /** An argument that decides over the cost is evaluated once, and then asked about. */
  #measured(
    name: string,
    receiver: ASTNode,
    [first, ...others]: readonly [ASTNode, ...ASTNode[]],
    depth: number,
  ): string {
    this.changed = true;
    const plain = first.op === "value";
    const argument = plain ? this.write(first, depth) : `svc_argument_${this.#bindings++}`;
    const rest = others.map((other) => `, ${this.write(other, depth)}`).join("");
    const on = `${methodMeters[name]}(${this.write(receiver, depth)}, ${argument})`;
    const asked = `${on}.${name}(${argument}${rest})`;
    return plain ? asked : `cel.bind(${argument}, ${this.write(first, depth)}, ${asked})`;
  }

  #call(name: string, receiver: ASTNode | undefined, args: readonly ASTNode[], outer: number): string {
    if (name === "matches") {
      const [text, pattern] = receiver ? [receiver, args[0]] : args;
      if (text) return this.#matches(text, pattern, outer);
    }
    if (receiver && Object.hasOwn(methodMeters, name)) {
      const [first, ...others] = args;
      if (first) return this.#measured(name, receiver, [first, ...others], outer);
      this.changed = true;
      return `svc_compare(${this.write(receiver, outer)}).${name}()`;
    }
    const isMacro = receiver !== undefined && macros.has(name);
    const depth = isMacro ? outer + 1 : outer;
    if (depth > macroDepthMax) throw new CelError(`macros may be nested ${macroDepthMax} deep at most`);
    // The arguments of a macro, of `has` and of `cel.bind` are names and expressions, not values.
    const plain = isMacro || name === "has" || name === "bind";
    // Of the functions that begin so, those with an argument tell the time in a zone.
    const isZoned = receiver !== undefined && name.startsWith("get") && args.length === 1;
    const isDuration = receiver === undefined && name === "duration";
    const given = args
      .map((arg) => {
        if (plain) return this.write(arg, depth);
        if (!isZoned && !isDuration)
          return this.#meter(!receiver && name === "size" ? "svc_size" : "svc_read", arg, depth);
        this.changed = true;
        if (isDuration && arg.op === "value" && lengthOf(arg.args) > durationCharsMax) throw tooLong;
        return `${isZoned ? "svc_zone" : "svc_duration"}(${this.write(arg, depth)})`;
      })
      .join(", ");
    if (!receiver) return `${name}(${given})`;
    // Chained macros walk one after the other, so a receiver is as deep as the macro that it feeds.
    const times = isMacro ? Math.ceil(nodesOf(args) / nodesAnItem) : 1;
    if (times > 1) {
      this.changed = true;
      return `svc_walk_times(${this.write(receiver, outer)}, ${times}).${name}(${given})`;
    }
    const on =
      name === "bind"
        ? this.write(receiver, outer)
        : this.#meter(isMacro ? "svc_walk" : (receiverMeters[name] ?? "svc_read"), receiver, outer);
    return `${on}.${name}(${given})`;
  }

  #binary(op: string, [left, right]: readonly [ASTNode, ASTNode], depth: number): string {
    if (op === "in") return `(${this.write(left, depth)} in ${this.#meter("svc_search", right, depth)})`;
    // Against a literal, comparing costs no more than the literal is long.
    const name = op === "+" || (left.op !== "value" && right.op !== "value") ? operandMeters[op] : undefined;
    const side = (node: ASTNode) => (name ? this.#meter(name, node, depth) : this.write(node, depth));
    return `(${side(left)} ${op} ${side(right)})`;
  }

  write(node: ASTNode, depth: number): string {
    const { op, args } = node;
    const list = (nodes: readonly ASTNode[]) => nodes.map((item) => this.write(item, depth)).join(", ");
    switch (op) {
      case "value":
        // As it was spelt: reprinting numbers and texts may change them.
        return node.input.slice(node.start, node.end);
      case "id":
        if (args.startsWith("svc_")) throw new CelError("names that begin with svc_ are reserved");
        return args;
      case ".":
        return `${this.write(args[0], depth)}.${args[1]}`;
      case "[]":
        return `${this.write(args[0], depth)}[${this.write(args[1], depth)}]`;
      case "call":
        return this.#call(args[0], undefined, args[1], depth);
      case "rcall":
        return this.#call(args[0], args[1], args[2], depth);
      case "list":
        return `[${list(args)}]`;
      case "map":
        return `{${args.map(([key, value]) => `${this.write(key, depth)}: ${this.write(value, depth)}`).join(", ")}}`;
      case "?:":
        return `(${this.write(args[0], depth)} ? ${this.write(args[1], depth)} : ${this.write(args[2], depth)})`;
      case "!_":
      case "-_":
        return `(${op[0]}${this.write(args, depth)})`;
      case ".?":
      case "[?]":
        throw new CelError("optional access is not supported");
      default:
        return this.#binary(op, args, depth);
    }
  }
}
