package etcd

import (
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger returns a zap logger that writes errors to log, so that etcd's lines look like all others. Warnings are
// logged only at -v=1, because a single member warns of being one. So are errors of a member that is closing: every
// listener then reports its end as an error. While it is starting they are no errors either: it tries again what it
// needs, and if it does not start, Start says why.
func newLogger(log logr.Logger, stage *atomic.Int32) *zap.Logger {
	return zap.New(&core{LevelEnabler: zapcore.WarnLevel, log: log, stage: stage})
}

// The stages of a member.
const (
	starting = iota
	running
	closing
)

// settled is how long a member is starting: some longer than its own pause between two tries.
const settled = 7 * time.Second

type core struct {
	zapcore.LevelEnabler
	log   logr.Logger
	stage *atomic.Int32
}

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{LevelEnabler: c.LevelEnabler, log: c.log.WithValues(keysAndValues(fields)...), stage: c.stage}
}

func (c *core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	switch stage := c.stage.Load(); {
	case entry.Level >= zapcore.ErrorLevel && stage == running:
		c.log.Error(nil, entry.Message, keysAndValues(fields)...)
	case entry.Level >= zapcore.ErrorLevel && stage == starting:
		c.log.Info(entry.Message, keysAndValues(fields)...)
	default:
		c.log.V(1).Info(entry.Message, keysAndValues(fields)...)
	}
	return nil
}

func (c *core) Sync() error { return nil }

func keysAndValues(fields []zapcore.Field) []any {
	encoder := zapcore.NewMapObjectEncoder()
	out := make([]any, 0, 2*len(fields))
	for _, f := range fields {
		f.AddTo(encoder)
		if v, ok := encoder.Fields[f.Key]; ok {
			out = append(out, f.Key, v)
		}
	}
	return out
}
