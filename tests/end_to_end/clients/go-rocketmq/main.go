// The probe on rocketmq-client-go: one order a line on stdin, one report a line on stdout (support/clients/rocketmq_probes.py says what they mean).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	freeAfter = 200 * time.Millisecond // the limited send is with the gateway by then
	patience  = 120 * time.Second        // where how long a busy machine takes is not what is tested
)

type order map[string]string

func (o order) number(name string) int {
	number, _ := strconv.Atoi(o[name])
	return number
}

type failure struct {
	Class string `json:"class"`
	Code  *int   `json:"code"`
	Text  string `json:"text"`
}

type sent struct {
	Seen       []interface{} `json:"seen"`
	Free       []interface{} `json:"free"`
	FreeOver   []float64     `json:"free_over_s"`
	FreeBefore int           `json:"free_before"`
	Elapsed    float64       `json:"elapsed_s"`
}

type received struct {
	Consumed []string `json:"consumed"`
	Failed   []string `json:"failed"`
	Elapsed  float64  `json:"elapsed_s"`
}

func told(err error) interface{} {
	if err == nil {
		return "ok"
	}
	return failure{fmt.Sprintf("%T", err), nil, err.Error()}
}

// within is the application's own time limit, for its last message; what the library gives an answer is fixed in its code.
func (o order) within(number int) (context.Context, context.CancelFunc) {
	if o["timeout"] == "" || number < o.number("count")-1 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(o.number("timeout"))*time.Millisecond)
}

func (o order) message(number int) *primitive.Message {
	return primitive.NewMessage(o["topic"], []byte(fmt.Sprintf("%s-%d", o["run"], number)))
}

func sendOne(p rocketmq.Producer, o order, number int) interface{} {
	ctx, cancel := o.within(number)
	defer cancel()
	switch o["mode"] {
	case "oneway":
		return told(p.SendOneWay(ctx, o.message(number)))
	case "batch":
		var messages []*primitive.Message
		for part := 0; part < o.number("batch"); part++ {
			messages = append(messages, o.message(number*o.number("batch")+part))
		}
		_, err := p.SendSync(ctx, messages...)
		return told(err)
	default:
		_, err := p.SendSync(ctx, o.message(number))
		return told(err)
	}
}

func sendAll(p rocketmq.Producer, o order, heldBegins chan<- struct{}) []interface{} {
	seen := []interface{}{}
	if o["mode"] != "async" {
		for number := 0; number < o.number("count"); number++ {
			if number == 1 {
				close(heldBegins)
			}
			seen = append(seen, sendOne(p, o, number))
		}
		return seen
	}
	words := make(chan interface{}, 2*o.number("count")) // the library calls some failures back twice
	for number := 0; number < o.number("count"); number++ {
		note := func(_ context.Context, _ *primitive.SendResult, err error) { words <- told(err) }
		if err := p.SendAsync(context.Background(), note, o.message(number)); err != nil {
			words <- told(err)
		}
	}
	late := time.After(patience)
	for number := 0; number < o.number("count"); number++ {
		select {
		case word := <-words:
			seen = append(seen, word)
		case <-late:
			return append(seen, "no callback")
		}
	}
	return seen
}

func send(p rocketmq.Producer, o order) sent {
	report := sent{Free: []interface{}{}, FreeOver: []float64{}}
	began := time.Now()
	var over atomic.Value
	over.Store(false)
	done, heldBegins := make(chan struct{}), make(chan struct{})
	go func() {
		report.Seen = sendAll(p, o, heldBegins)
		over.Store(true)
		close(done)
	}()
	if o["free"] != "" {
		<-heldBegins
		time.Sleep(freeAfter)
		for number := 0; number < o.number("free_count"); number++ {
			_, err := p.SendSync(context.Background(), primitive.NewMessage(o["free"], []byte("free-0")))
			report.FreeOver = append(report.FreeOver, time.Since(began).Seconds())
			report.Free = append(report.Free, told(err))
			if over.Load() == false {
				report.FreeBefore++
			}
		}
	}
	<-done
	report.Elapsed = time.Since(began).Seconds()
	return report
}

func consume(o order) (received, error) {
	report := received{Consumed: []string{}, Failed: []string{}}
	var lock sync.Mutex
	distinct := map[string]bool{}
	failed := map[string]bool{}
	c, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(o["group"]),
		consumer.WithNameServer([]string{o["namesrv"]}),
		consumer.WithInstance(fmt.Sprintf("probe-%d-%s-%d", os.Getpid(), o["group"], time.Now().UnixNano())),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return report, err
	}
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, message := range messages { // one at a time: ConsumeMessageBatchMaxSize is 1
			body := string(message.Body)
			if len(failed) < o.number("fail_first") && !failed[body] {
				failed[body] = true
				report.Failed = append(report.Failed, body)
				return consumer.ConsumeRetryLater, nil
			}
			distinct[body] = true
			report.Consumed = append(report.Consumed, body)
		}
		return consumer.ConsumeSuccess, nil
	}
	if err = c.Subscribe(o["topic"], consumer.MessageSelector{}, take); err != nil {
		return report, err
	}
	began := time.Now()
	if err = c.Start(); err != nil {
		return report, err
	}
	enough := func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(distinct) >= o.number("expected")
	}
	for !enough() && time.Since(began) < time.Duration(o.number("within"))*time.Second {
		time.Sleep(20 * time.Millisecond)
	}
	elapsed := time.Since(began).Seconds()
	err = c.Shutdown()
	lock.Lock()
	defer lock.Unlock()
	report.Elapsed = elapsed
	return report, err
}

func start(nameServer string) (rocketmq.Producer, error) {
	p, err := rocketmq.NewProducer(
		producer.WithGroupName("probe-producers"),
		producer.WithNameServer([]string{nameServer}),
		producer.WithInstanceName(fmt.Sprintf("probe-%d", os.Getpid())),
	)
	if err != nil {
		return nil, err
	}
	return p, p.Start()
}

func main() {
	rlog.SetLogLevel("error")
	reports := json.NewEncoder(os.Stdout)
	var p rocketmq.Producer
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		o := order{}
		for _, word := range strings.Fields(lines.Text()) {
			name, value, _ := strings.Cut(word, "=")
			o[name] = value
		}
		var report interface{}
		var err error
		if o["do"] == "send" {
			if p == nil {
				p, err = start(o["namesrv"])
			}
			if err == nil {
				report = send(p, o)
			}
		} else {
			report, err = consume(o)
		}
		if err != nil {
			p = nil
			report = map[string]string{"broken": err.Error()}
		}
		reports.Encode(report)
	}
}
