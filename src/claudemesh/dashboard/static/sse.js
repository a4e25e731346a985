// What does a stream of Server-Sent Events say? Bytes in pieces of any size go in, whole events come out.

export class EventReader {
  #decoder = new TextDecoder();
  #rest = "";
  lastId = null;

  // Returns the events that are complete now. A comment alone is a sign of life, and no event.
  read(bytes) {
    const blocks = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split("\n\n");
    this.#rest = blocks.pop();
    return blocks.map((block) => this.#parse(block)).filter(Boolean);
  }

  #parse(block) {
    let type = "message";
    const data = [];
    for (const line of block.split("\n")) {
      const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line); // whatever else ends a line for JavaScript: here it ends none
      if (field === "id") this.lastId = value;
      if (field === "event") type = value;
      if (field === "data") data.push(value);
    }
    return data.length ? { type, data: data.join("\n") } : null;
  }
}
