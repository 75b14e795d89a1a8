// Frames of 80 ms as they come: heard one after another, and kept for the player.

const RATE = 24000;
const HEAD = 44; // bytes of a WAV file before its samples
const LEAD_S = 0.08; // how far behind the first frame it starts, so that the next is there in time

class Sound {
  constructor() {
    this.gaps = 0;
    this._pieces = [];
    this._playing = new Set();
    this._until = 0;
    this.stopped = false;
    this._context = new AudioContext({ sampleRate: RATE });
    this._context.resume().catch(() => {}); // nobody may hear it; the player has it all the same
  }

  get seconds() {
    return this._pieces.reduce((sum, piece) => sum + piece.length, 0) / 2 / RATE;
  }

  // A whole WAV file of one frame, in base64.
  frame(base64) {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)).subarray(HEAD);
    this._pieces.push(bytes);
    if (!this.stopped) this._play(bytes);
  }

  _play(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const samples = Float32Array.from({ length: bytes.length / 2 }, (_, i) => view.getInt16(2 * i, true) / 32768);
    const buffer = this._context.createBuffer(1, samples.length, RATE);
    buffer.copyToChannel(samples, 0);
    const source = this._context.createBufferSource();
    source.buffer = buffer;
    source.connect(this._context.destination);
    source.onended = () => this._playing.delete(source);
    this._playing.add(source);
    const now = this._context.currentTime;
    if (this._until < now) {
      if (this._until > 0) this.gaps += 1;
      this._until = now + LEAD_S;
    }
    source.start(this._until);
    this._until += buffer.duration;
  }

  // Nothing more is heard; what still comes is kept.
  stop() {
    this.stopped = true;
    this._until = 0;
    for (const source of this._playing) source.stop();
  }

  // Once everything was heard: let the device go.
  close() {
    const left = Math.max(0, this._until - this._context.currentTime);
    setTimeout(() => this._context.close(), 1000 * left + 500);
  }

  file() {
    const size = this._pieces.reduce((sum, piece) => sum + piece.length, 0);
    const head = new DataView(new ArrayBuffer(HEAD));
    const word = (at, text) => [...text].forEach((letter, i) => head.setUint8(at + i, letter.charCodeAt(0)));
    word(0, "RIFF");
    head.setUint32(4, HEAD - 8 + size, true);
    word(8, "WAVEfmt ");
    head.setUint32(16, 16, true);
    head.setUint16(20, 1, true); // PCM
    head.setUint16(22, 1, true); // mono
    head.setUint32(24, RATE, true);
    head.setUint32(28, 2 * RATE, true);
    head.setUint16(32, 2, true);
    head.setUint16(34, 16, true);
    word(36, "data");
    head.setUint32(40, size, true);
    return new Blob([head.buffer, ...this._pieces], { type: "audio/wav" });
  }
}
