package extauthz

import (
	"bytes"
	"fmt"

	"github.com/sidehook/sidehook/internal/store"
)

// RowCheck is the inbox's part of store.Check: every row can be read, an id has one row, and the counters say what
// there is. The zero value is ready for one check.
type RowCheck struct {
	rows     map[countKey]count
	counters map[countKey]count
	open     map[string]struct{}
	// versions are those of open rows, and the objects that they are of, until the object's own row has been met.
	versions map[string]openVersion
}

var _ store.Rows = (*RowCheck)(nil)

// Row implements store.Rows.
func (c *RowCheck) Row(bucket string, key, value []byte) error {
	switch bucket {
	case string(openBucket), string(doneBucket):
		return c.event(bucket, key, value)
	case string(contentBucket):
		row, err := parseContentRow(value)
		if err != nil {
			return err
		}
		_, err = parseKey(row.Key)
		return err
	case string(versionBucket):
		return c.object(key, value)
	case string(countBucket):
		k, err := parseCountKey(key)
		if err != nil {
			return err
		}
		n, err := parseCount(value)
		if err != nil {
			return err
		}
		add(&c.counters, k, n)
	case string(clockBucket):
		if (bytes.Equal(key, epochKey) || bytes.Equal(key, newestKey)) && len(value) != 8 {
			return fmt.Errorf("%w: %d bytes instead of 8", errRow, len(value))
		}
	}
	return nil
}

func (c *RowCheck) event(bucket string, key, value []byte) error {
	k, err := parseKey(key)
	if err != nil {
		return err
	}
	r, err := parseRow(value)
	if err != nil {
		return err
	}
	if r.State.settled() != (bucket == string(doneBucket)) {
		return fmt.Errorf("%w: state %s in bucket %s", errRow, r.State, bucket)
	}
	add(&c.rows, countKey{k.Source, r.State, hourOf(&r)}, count{1, int64(len(key) + len(value))})
	// Buckets come in the order of their names, so the few open rows are known before the many done ones.
	if bucket == string(openBucket) {
		if c.open == nil {
			c.open = make(map[string]struct{})
		}
		c.open[string(key)] = struct{}{}
		return c.version(key, &r)
	} else if _, twice := c.open[string(key)]; twice {
		return fmt.Errorf("%w: id is open and done", errRow)
	}
	return nil
}

// version notes the version of an open row.
func (c *RowCheck) version(key []byte, r *row) error {
	if r.Version.At == "" {
		return nil
	}
	object, err := hashKey(key, r.Version.Object)
	if err != nil {
		return err
	}
	if c.versions == nil {
		c.versions = make(map[string]openVersion)
	}
	c.versions[string(key)] = openVersion{r.Version.At, object}
	return nil
}

// object holds what is known of an object to the open rows.
func (c *RowCheck) object(key, value []byte) error {
	v, err := parseVersionRow(value)
	if err != nil {
		return err
	}
	if v.Mark == "" && len(v.Open) == 0 {
		return fmt.Errorf("%w: nothing is known of an object", errRow)
	}
	for _, o := range v.Open {
		if of, ok := c.versions[string(o.Key)]; !ok || of.At != o.At || !bytes.Equal(of.Key, key) {
			return fmt.Errorf("%w: version %s of an id that is not open with it", errRow, o.At)
		}
		delete(c.versions, string(o.Key))
	}
	return nil
}

// Finish implements store.Rows.
func (c *RowCheck) Finish() []error {
	var problems []error
	for key, v := range c.versions {
		problems = append(problems, fmt.Errorf("open id %q: its version %s is not with its object", key, v.At))
	}
	for k, n := range c.rows {
		if c.counters[k] != n {
			problems = append(problems, fmt.Errorf("counter of %s %s in hour %d says %d rows, %d bytes: there are %d rows, %d bytes",
				k.source, k.state, k.hour, c.counters[k].rows, c.counters[k].bytes, n.rows, n.bytes))
		}
	}
	for k, n := range c.counters {
		if _, ok := c.rows[k]; !ok {
			problems = append(problems, fmt.Errorf("counter of %s %s in hour %d says %d rows: there are none", k.source, k.state, k.hour, n.rows))
		}
	}
	return problems
}

func add(m *map[countKey]count, k countKey, n count) {
	if *m == nil {
		*m = make(map[countKey]count)
	}
	now := (*m)[k]
	(*m)[k] = count{now.rows + n.rows, now.bytes + n.bytes}
}
